"""Upstreams of tenants: added, listed, accepted and deleted by people.

Accepting an item pins its definition and offers it under the tenant's own name. It is the only way in which a
definition of an upstream reaches clients.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.catalog import authoring, uri_templates
from tools_app.catalog.kinds.upstream import runner as kind
from tools_app.catalog.kinds.upstream.kind import UpstreamKind
from tools_app.catalog.models import PROMPT_NAME, RESOURCE_URI, TOOL_NAME, TaskSupport
from tools_app.catalog.tool_api.results import ToolError
from tools_app.catalog.validation.items import check_tool_annotations
from tools_app.catalog.validation.reserved import reserved_fault
from tools_app.catalog.validation.resources import check_annotations
from tools_app.catalog.validation.shapes import check_icons
from tools_app.catalog.validation.sizes import MAX_DESCRIPTION_LENGTH
from tools_app.catalog.versioned import check_count
from tools_app.core.ids import new_id
from tools_app.core.sanitize import sanitized
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.models import (
    Action,
    ItemKind,
    ItemState,
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    Tool,
    Upstream,
    UpstreamItem,
    UpstreamStatus,
)
from tools_app.protocol import content
from tools_app.protocol.mirrored import InvalidMirror, mirrored
from tools_app.protocol.schema import CompiledSchema, InvalidSchema
from tools_app.protocol.tool_schemas import arguments_schema, result_schema
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit
from tools_app.upstreams import connections
from tools_app.upstreams.client import ServerInfo
from tools_app.upstreams.connections import Connection
from tools_app.upstreams.credentials import resolve, store
from tools_app.upstreams.errors import MAX_ERROR_LENGTH, ErrorResponse, LoopRefused, Refused, UpstreamFailed
from tools_app.upstreams.http import UNAUTHORIZED
from tools_app.upstreams.observation import store_status
from tools_app.upstreams.warnings import warnings_of

DISCOVERY_SECONDS: Final = 90.0
# Of a tenant in all processes: each keeps a thread that answers pages.
MAX_DISCOVERIES: Final = 4
MAX_TITLE_LENGTH: Final = 200
# Names that are this similar may be of the same item (difflib's ratio), and how many are compared.
MIN_SIMILARITY: Final = 0.75
MAX_COMPARED: Final = 200
# Members of definitions that can be null or missing. What is missing there means nothing else.
_MEMBERS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("title", "description", "mimeType"), str),
    **dict.fromkeys(("annotations", "_meta", "execution"), dict),
    **dict.fromkeys(("icons", "arguments"), list),
}
# Annotations of resources that clients refuse if they are invalid. An invalid `lastModified` is left out.
RATED: Final = frozenset({"audience", "priority"})
_INVALID_NAME_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_.-]")


class NotAcceptable(ValueError):
    """The item cannot be offered. The message says why."""


@dataclass
class Discovery:
    """What an upstream said and offers now."""

    server: ServerInfo
    items: list[UpstreamItem] = field(default_factory=list)

    def of_kind(self, item_kind: str) -> list[UpstreamItem]:
        """Return the items of one kind."""
        return [item for item in self.items if item.kind == item_kind]

    @property
    def summary(self) -> str:
        """How many items of each kind there are, such as "2 tools, 1 prompt"."""
        counts = [(len(self.of_kind(kind)), kind.label.lower()) for kind in ItemKind]
        return ", ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts if count) or "nothing"


def discover(upstream: Upstream, person_id: int | None = None) -> Discovery:
    """Connect to an upstream and list what it offers; stores both. Raises UpstreamFailed.

    The tenant's credential is used, or that of the person who asks. Not for event loops: it waits for the upstream.
    """
    registry = connections.current()
    secrets: tuple[str, ...] = ()
    place = ConcurrencyLimit("tenant", "checks", MAX_DISCOVERIES, f"upstreams:checks:tenant:{upstream.tenant_id}")
    place_id = str(new_id())
    if limits.acquire_blocking([place], place_id, DISCOVERY_SECONDS) is not None:
        raise UpstreamFailed(
            f"{MAX_DISCOVERIES} upstreams of this tenant are being asked. Wait until one has answered."
        )

    async def work(connection: Connection) -> ServerInfo:
        client = await connection.client()
        for item_kind in ItemKind:
            await connection.list_definitions(item_kind)
        return client.server

    try:
        secrets_of_tenant = authoring.decrypted_secrets(upstream.tenant)
        endpoint = kind.endpoint_of(upstream, upstream.tenant, secrets_of_tenant)
        endpoint = resolve.endpoint_for_listing(endpoint, person_id)
        secrets = endpoint.secrets
        asking = registry.submit(registry.use(endpoint, work, is_check=True))
        try:
            server = asking.result(DISCOVERY_SECONDS)
        finally:
            # One that did not answer in time is asked no more.
            asking.cancel()
    except (ToolError, ErrorResponse, TimeoutError) as error:
        failure = _failure(error, Scrubber(secrets))
        if upstream.credential and isinstance(error, Refused) and error.status in UNAUTHORIZED:
            url = store.credential_url(upstream.pk, store.TENANT)
            failure = UpstreamFailed(f"{failure.message} Enter or renew it at {url}")
        store_status(upstream.pk, None, failure.message)
        # Without the error itself, whose texts are the upstream's.
        raise failure from None
    finally:
        limits.release_of([place.key], place_id)
    store_status(upstream.pk, server)
    return Discovery(server, list(upstream.items.all()))


def offered_name(upstream: Upstream, name: str) -> str:
    """Return the name under which the hub offers a tool or a prompt of an upstream."""
    sanitized_name = _INVALID_NAME_CHARACTERS.sub("_", name)
    return f"{upstream.prefix}_{sanitized_name}" if upstream.prefix else sanitized_name


def accept(items: Iterable[UpstreamItem], by: User | None = None) -> list[UpstreamItem]:
    """Accept the proposed definitions of items of one upstream, all or none, and offer them. Raises NotAcceptable."""
    chosen = list(items)
    with authoring.single_version_bump():
        models: Mapping[str, Any] = {ItemKind.TOOL: Tool, ItemKind.PROMPT: Prompt}
        new_rows = Counter((item.tenant_id, models.get(item.kind, Resource)) for item in chosen if row_of(item) is None)
        for (tenant_id, model), count in new_rows.items():
            rows: QuerySet[Any] = model.objects.filter(tenant=tenant_id)
            try:
                check_count(model, rows.count() + count)
            except ValidationError as error:
                raise NotAcceptable(error.messages[0]) from error
        upstreams = {item.upstream_id for item in chosen}
        makes_tasks = UpstreamStatus.objects.filter(upstream__in=upstreams, makes_tasks=True).exists()
        return [_accept(item, by, makes_tasks=makes_tasks) for item in chosen]


def partition_acceptable(items: Iterable[UpstreamItem]) -> tuple[list[UpstreamItem], dict[UpstreamItem, str]]:
    """Return the items that wait for a decision and could be offered, and why others cannot."""
    acceptable: dict[tuple[str, str], UpstreamItem] = {}
    problems: dict[UpstreamItem, str] = {}
    for item in filter(is_pending, items):
        key = item.kind, offered_name(item.upstream, item.name)
        try:
            if key in acceptable:
                raise NotAcceptable(f"Another one would be offered as {key[1]}, too.")
            _check(item, proposal_of(item))
            acceptable[key] = item
        except NotAcceptable as error:
            problems[item] = str(error)
    return list(acceptable.values()), problems


def is_pending(item: UpstreamItem) -> bool:
    """Whether a decision about the item is open: it is new, changed, or its row was deleted."""
    return item.state != ItemState.REMOVED and (item.state != ItemState.ACCEPTED or row_of(item) is None)


def former_names(items: Iterable[UpstreamItem]) -> dict[UpstreamItem, str]:
    """Return which new items may be removed ones under another name: equal but for it, or with a similar one.

    A hint for the admin, who may want to carry over what was overridden. At most MAX_COMPARED items of each state and
    kind are compared.
    """
    by_state: defaultdict[tuple[str, str], list[UpstreamItem]] = defaultdict(list)
    for item in items:
        by_state[item.state, item.kind].append(item)
    former_by_item: dict[UpstreamItem, str] = {}
    for item_kind in ItemKind:
        removed = by_state[ItemState.REMOVED, item_kind][:MAX_COMPARED]
        equal = {_digest_without_name(item.accepted): item.name for item in removed}
        names = [item.name for item in removed]
        for item in by_state[ItemState.NEW, item_kind][:MAX_COMPARED] if removed else ():
            similar = get_close_matches(item.name, names, n=1, cutoff=MIN_SIMILARITY)
            if former := equal.get(_digest_without_name(item.proposed)) or next(iter(similar), ""):
                former_by_item[item] = former
    return former_by_item


def former_names_of(upstream_id: UUID) -> dict[UUID, str]:
    """Return `former_names` of an upstream, by the ids of its new items."""
    items = UpstreamItem.objects.filter(upstream=upstream_id, state__in=[ItemState.NEW, ItemState.REMOVED])
    # Usually there are none, and the definitions of new items may be large.
    if not items.filter(state=ItemState.REMOVED).exists():
        return {}
    return {item.pk: name for item, name in former_names(items.order_by("kind", "name")).items()}


def _digest_without_name(definition: dict[str, Any] | None) -> str:
    name_fields = ("name", "title", "uri", "uriTemplate")
    return kind.digest_of({key: value for key, value in (definition or {}).items() if key not in name_fields})


def proposal_of(item: UpstreamItem) -> dict[str, Any]:
    """Return the definition that accepting the item would accept."""
    proposal: dict[str, Any] = item.proposed if item.proposed is not None else item.accepted or {}
    return proposal


def proposal_digest(item: UpstreamItem) -> str:
    """Return the digest of the definition that accepting the item would accept."""
    return kind.digest_of(proposal_of(item))


def row_of(item: UpstreamItem) -> Tool | Resource | Prompt | None:
    """Return the row under which an item is offered."""
    return item.tool or item.resource or item.prompt


def delete_item(item: UpstreamItem) -> None:
    """Delete what a removed item was offered as, and the item."""
    with authoring.single_version_bump():
        if (row := row_of(item)) is not None:
            authoring.delete(row)
        item.delete()


def delete(upstream: Upstream) -> None:
    """Delete an upstream with all that it offers. Recorded calls are kept."""
    with authoring.single_version_bump():
        for item in upstream.items.select_related("tool", "resource", "prompt"):
            if (row := row_of(item)) is not None:
                authoring.delete(row)
        upstream.delete()


def _accept(item: UpstreamItem, by: User | None, *, makes_tasks: bool) -> UpstreamItem:
    definition = item.proposed if item.proposed is not None else item.accepted
    if definition is None or item.state == ItemState.REMOVED:
        raise NotAcceptable(f"'{item.name}': the upstream does not offer it.")
    _check(item, definition)
    match item.kind:
        case ItemKind.TOOL:
            item.tool = authoring.save_tool(_tool(item, definition, makes_tasks=makes_tasks), by)
        case ItemKind.PROMPT:
            item.prompt = authoring.save_prompt(_prompt(item, definition))
        case _:
            item.resource = authoring.save_resource(_resource(item, definition))
    before = item.digest
    item.accepted, item.digest, item.proposed = definition, kind.digest_of(definition), None
    item.state, item.updated_at, item.warnings = ItemState.ACCEPTED, timezone.now(), warnings_of(definition)
    item.save()
    after = {"upstream": item.upstream.name, "kind": item.kind, "sha256": item.digest}
    changes.record(Action.CHANGED, item, before={"sha256": before} if before else {}, after=after)
    return item


def _check(item: UpstreamItem, definition: dict[str, Any]) -> None:
    """Raise NotAcceptable for a definition that the hub cannot offer."""
    for error in _problems(item, definition):
        raise NotAcceptable(f"'{item.name}': {error}")


def _problems(item: UpstreamItem, definition: dict[str, Any]) -> Iterator[str]:
    if len(_text(definition, "description")) > MAX_DESCRIPTION_LENGTH:
        yield f"its description has more than {MAX_DESCRIPTION_LENGTH} characters."
    for name, expected_type in _MEMBERS.items():
        if not isinstance(definition.get(name), expected_type | None):
            yield f"its {name} {'is' if expected_type is str else 'are'} invalid."
    # Icons in the fields that this hub knows; revisions add others.
    icons = definition.get("icons")
    known = ("src", "mimeType", "sizes")
    known_icons = [
        {name: value for name, value in _present(icon).items() if name in known} if isinstance(icon, dict) else icon
        for icon in (icons if isinstance(icons, list) else ())
    ]
    yield from (f"its icons are invalid: {error}" for error in check_icons(known_icons))
    name = offered_name(item.upstream, item.name)
    match item.kind:
        case ItemKind.TOOL:
            yield from _tool_problems(item, name, definition)
        case ItemKind.PROMPT:
            rows = Prompt.objects.filter(tenant=item.tenant_id, name=name)
            yield from _name_problems(PROMPT_NAME, name, rows, item.prompt_id)
            arguments = definition.get("arguments")
            if isinstance(arguments, list) and not all(map(_is_argument, arguments)):
                yield "its arguments are invalid."
        case _:
            yield from _resource_problems(item, definition)


def _present(value: Any) -> dict[str, Any]:
    """Return the members of an object that are not null."""
    members = value.items() if isinstance(value, dict) else ()
    return {name: member for name, member in members if member is not None}


def _text(definition: dict[str, Any], name: str) -> str:
    value = definition.get(name)
    return value if isinstance(value, str) else ""


def _is_argument(argument: Any) -> bool:
    if not isinstance(argument, dict) or not isinstance(argument.get("name"), str):
        return False
    return isinstance(argument.get("description"), str | None) and isinstance(argument.get("required"), bool | None)


def _resource_problems(item: UpstreamItem, definition: dict[str, Any]) -> Iterator[str]:
    annotations = _present(definition.get("annotations"))
    for error in check_annotations({name: annotations[name] for name in RATED & annotations.keys()}):
        yield f"its annotations are invalid: {error}"
    rows = Resource.objects.filter(tenant=item.tenant_id, uri=item.name)
    yield from _name_problems(RESOURCE_URI, item.name, rows, item.resource_id)
    try:
        variables = uri_templates.parse(item.name).variables
    except ValueError as error:
        yield f"its URI is invalid: {error}."
    else:
        if bool(variables) != (item.kind == ItemKind.TEMPLATE):
            yield "its URI is not a template." if item.kind == ItemKind.TEMPLATE else "its URI is a template."


def _tool_problems(item: UpstreamItem, name: str, definition: dict[str, Any]) -> Iterator[str]:
    rows = Tool.objects.filter(tenant=item.tenant_id, name=name)
    yield from _name_problems(TOOL_NAME, name, rows, item.tool_id)
    if fault := reserved_fault(item.tenant, name, item.tool_id):
        yield fault
    try:
        schema = arguments_schema(definition.get("inputSchema"))
        CompiledSchema(schema, lenient=True)
        CompiledSchema(result_schema(definition.get("outputSchema")), lenient=True)
        mirrored(schema)
    except (InvalidSchema, InvalidMirror) as error:
        yield f"its schemas cannot be used: {str(error)[:500]}"
    hints = _present(definition.get("annotations"))
    for hint_problem in check_tool_annotations(
        {hint: hints[hint] for hint in {*content.HINTS, "title"} & hints.keys()}
    ):
        yield f"its annotations are invalid: {hint_problem}"


def _name_problems(validator: Any, name: str, rows: Any, own_id: Any) -> Iterator[str]:
    try:
        validator(name)
    except ValidationError as error:
        yield f"it would be offered as {name!r}. {error.message}"
    if (row := rows.exclude(pk=own_id).first()) is not None:
        yield f"this tenant already has one named {row}. Give the upstream another prefix."


def _tool(item: UpstreamItem, definition: dict[str, Any], *, makes_tasks: bool) -> Tool:
    tool = item.tool or Tool(tenant_id=item.tenant_id, timeout_seconds=item.upstream.timeout_seconds)
    tool.kind = UpstreamKind.name
    tool.name = offered_name(item.upstream, item.name)
    tool.title = _text(definition, "title")[:MAX_TITLE_LENGTH]
    tool.description = _text(definition, "description")
    tool.input_schema = arguments_schema(definition.get("inputSchema"))
    tool.output_schema = result_schema(definition.get("outputSchema")) or None
    tool.annotations = content.hints(definition.get("annotations")) or {}
    tool.icons = content.icons(definition.get("icons")) or []
    execution = definition.get("execution")
    support = execution.get("taskSupport") if isinstance(execution, dict) else None
    # A modern upstream decides with each call whether it becomes a task.
    default_support = TaskSupport.OPTIONAL if makes_tasks else TaskSupport.NEVER
    tool.task = TaskSupport(support) if support in {TaskSupport.OPTIONAL, TaskSupport.REQUIRED} else default_support
    tool.config = {"upstream": item.upstream.name, "tool": item.name, "meta": definition.get("_meta") or {}}
    return tool


def _resource(item: UpstreamItem, definition: dict[str, Any]) -> Resource:
    resource = item.resource or Resource(tenant_id=item.tenant_id)
    resource.kind, resource.uri = ResourceKind.UPSTREAM, item.name
    resource.name = (_text(definition, "name") or item.name)[:MAX_TITLE_LENGTH]
    resource.title = _text(definition, "title")[:MAX_TITLE_LENGTH]
    resource.description = _text(definition, "description")
    resource.mime_type = _text(definition, "mimeType")[:MAX_TITLE_LENGTH]
    resource.annotations = content.annotations(definition.get("annotations")) or {}
    resource.icons = content.icons(definition.get("icons")) or []
    resource.config = {"upstream": item.upstream.name}
    return resource


def _prompt(item: UpstreamItem, definition: dict[str, Any]) -> Prompt:
    prompt = item.prompt or Prompt(tenant_id=item.tenant_id)
    prompt.kind, prompt.name = PromptKind.UPSTREAM, offered_name(item.upstream, item.name)
    prompt.title = _text(definition, "title")[:MAX_TITLE_LENGTH]
    prompt.description = _text(definition, "description")
    prompt.icons = content.icons(definition.get("icons")) or []
    prompt.arguments = [
        {
            "name": argument["name"],
            "description": _text(argument, "description"),
            "required": argument.get("required") is True,
        }
        for argument in definition.get("arguments") or []
    ]
    prompt.config = {"upstream": item.upstream.name, "prompt": item.name}
    return prompt


def _failure(error: Exception, scrubber: Scrubber) -> UpstreamFailed:
    """Return a failure as it may be shown and stored: an upstream may repeat the credential that it was sent."""
    message, cause = str(error), ""
    match error:
        case UpstreamFailed():
            message, cause = error.message, error.cause
        case ErrorResponse():
            message = f"The upstream answered with error {error.code}: {error.message}"
        case TimeoutError():
            message = f"The upstream did not answer within {DISCOVERY_SECONDS:g} seconds."
    message, cause = (sanitized(scrubber.beginning(text, MAX_ERROR_LENGTH)) for text in (message, cause))
    return LoopRefused(message) if isinstance(error, LoopRefused) else UpstreamFailed(message, cause)
