"""Upstreams of tenants: added, listed, accepted and deleted by people.

Accepting an item pins its definition and offers it under the tenant's own name. It is the only way in which a
definition of an upstream reaches clients.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.catalog import authoring, uri_templates
from tools_app.catalog.kinds import upstream as kind
from tools_app.catalog.validation.items import HINTS, check_tool_annotations
from tools_app.catalog.validation.reserved import reserved_fault
from tools_app.catalog.validation.shapes import check_icons
from tools_app.catalog.validation.sizes import MAX_DESCRIPTION_LENGTH
from tools_app.core.sanitize import sanitized
from tools_app.models import (
    Action,
    ItemKind,
    ItemState,
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    Tool,
    ToolKind,
    Upstream,
    UpstreamItem,
)
from tools_app.models.catalog import PROMPT_NAME, RESOURCE_URI, TOOL_NAME, TaskSupport
from tools_app.models.versioned import check_count
from tools_app.protocol.mirrored import BadMirror, mirrored
from tools_app.protocol.schema import BadSchema, CompiledSchema
from tools_app.telemetry.secret_names import Scrubber
from tools_app.tool_api.results import ToolError
from tools_app.upstreams import connections
from tools_app.upstreams.client import Server
from tools_app.upstreams.connections import Connection
from tools_app.upstreams.credentials import resolve, store
from tools_app.upstreams.errors import ErrorResponse, Refused, UpstreamFailed
from tools_app.upstreams.http import UNAUTHORIZED
from tools_app.upstreams.observation import note_status

DISCOVERY_SECONDS: Final = 90.0
MAX_TITLE_LENGTH: Final = 200
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]")


class NotAcceptable(ValueError):
    """The item cannot be offered. The message says why."""


@dataclass
class Discovery:
    """What an upstream said and offers now."""

    server: Server
    items: list[UpstreamItem] = field(default_factory=list)

    def of_kind(self, wanted: str) -> list[UpstreamItem]:
        """Return the items of one kind."""
        return [item for item in self.items if item.kind == wanted]


def discover(upstream: Upstream, person_id: int | None = None) -> Discovery:
    """Connect to an upstream and list what it offers; stores both. Raises UpstreamFailed.

    The tenant's credential is used, or that of the person who asks. Not for event loops: it waits for the upstream.
    """
    holder = connections.current()
    secrets: tuple[str, ...] = ()

    async def work(connection: Connection) -> Server:
        client = await connection.client()
        for one in ItemKind:
            await connection.listed(one)
        return client.server

    try:
        endpoint = kind.endpoint_of(upstream, upstream.tenant, authoring.opened_secrets(upstream.tenant))
        endpoint = resolve.listing(endpoint, person_id)
        secrets = endpoint.secrets
        server = holder.submit(holder.use(endpoint, work, is_check=True)).result(DISCOVERY_SECONDS)
    except (ToolError, ErrorResponse, TimeoutError) as problem:
        failure = _failure(problem, Scrubber(secrets))
        if _needs_credential(upstream, problem):
            failure = UpstreamFailed(f"{failure.message} Enter or renew it at {store.link(upstream.pk, store.TENANT)}")
        note_status(upstream.pk, None, failure.message)
        # Without the problem itself, whose texts are the upstream's.
        raise failure from None
    note_status(upstream.pk, server)
    return Discovery(server, list(upstream.items.all()))


def offered_name(upstream: Upstream, name: str) -> str:
    """Return the name under which the hub offers a tool or a prompt of an upstream."""
    own = _NOT_IN_NAMES.sub("_", name)
    return f"{upstream.prefix}_{own}" if upstream.prefix else own


def accept(items: Iterable[UpstreamItem], by: User | None = None) -> list[UpstreamItem]:
    """Accept the proposed definitions of items of one upstream, all or none, and offer them. Raises NotAcceptable."""
    chosen = list(items)
    with authoring.one_touch():
        _check_room(chosen)
        return [_accept(item, by) for item in chosen]


def acceptable(items: Iterable[UpstreamItem]) -> tuple[list[UpstreamItem], dict[UpstreamItem, str]]:
    """Return the items that wait for a decision and could be offered, and why others cannot."""
    good: list[UpstreamItem] = []
    bad: dict[UpstreamItem, str] = {}
    names: set[tuple[str, str]] = set()
    for item in items:
        if not is_waiting(item):
            continue
        key = item.kind, offered_name(item.upstream, item.name)
        try:
            if key in names:
                raise NotAcceptable(f"Another one would be offered as {key[1]}, too.")
            _check(item, item.proposed or item.accepted or {})
        except NotAcceptable as problem:
            bad[item] = str(problem)
        else:
            names.add(key)
            good.append(item)
    return good, bad


def is_waiting(item: UpstreamItem) -> bool:
    """Whether a decision about the item is open: it is new, changed, or its row was deleted."""
    if item.state == ItemState.REMOVED:
        return False
    return item.state != ItemState.ACCEPTED or row_of(item) is None


def proposal_digest(item: UpstreamItem) -> str:
    """Return the digest of the definition that accepting the item would accept."""
    return kind.digest_of(item.proposed if item.proposed is not None else item.accepted or {})


def row_of(item: UpstreamItem) -> Tool | Resource | Prompt | None:
    """Return the row under which an item is offered."""
    return item.tool or item.resource or item.prompt


def forget(item: UpstreamItem) -> None:
    """Delete what a removed item was offered as, and the item."""
    with authoring.one_touch():
        row = row_of(item)
        if row is not None:
            authoring.delete(row)
        item.delete()


def delete(upstream: Upstream) -> None:
    """Delete an upstream with all that it offers. Recorded calls are kept."""
    with authoring.one_touch():
        for item in upstream.items.select_related("tool", "resource", "prompt"):
            row = row_of(item)
            if row is not None:
                authoring.delete(row)
        upstream.delete()


def _check_room(items: Iterable[UpstreamItem]) -> None:
    """Raise NotAcceptable if the tenant would have more rows of a kind than it can."""
    more = Counter((item.tenant_id, _model_of(item)) for item in items if row_of(item) is None)
    for (tenant_id, model), number in more.items():
        rows: QuerySet[Any] = model._default_manager.filter(tenant=tenant_id)
        try:
            check_count(model, rows.count() + number)
        except ValidationError as problem:
            raise NotAcceptable(problem.messages[0]) from problem


def _model_of(item: UpstreamItem) -> type[Tool | Resource | Prompt]:
    match item.kind:
        case ItemKind.TOOL:
            return Tool
        case ItemKind.PROMPT:
            return Prompt
    return Resource


def _accept(item: UpstreamItem, by: User | None) -> UpstreamItem:
    definition = item.proposed if item.proposed is not None else item.accepted
    if definition is None or item.state == ItemState.REMOVED:
        raise NotAcceptable(f"'{item.name}': the upstream does not offer it.")
    _check(item, definition)
    match item.kind:
        case ItemKind.TOOL:
            item.tool = authoring.save_tool(_tool(item, definition), by)
        case ItemKind.PROMPT:
            item.prompt = authoring.save_prompt(_prompt(item, definition))
        case _:
            item.resource = authoring.save_resource(_resource(item, definition))
    before = item.digest
    item.accepted, item.digest, item.proposed = definition, kind.digest_of(definition), None
    item.state, item.updated_at = ItemState.ACCEPTED, timezone.now()
    item.save()
    after = {"upstream": item.upstream.name, "kind": item.kind, "sha256": item.digest}
    changes.record(Action.CHANGED, item, before={"sha256": before} if before else {}, after=after)
    return item


def _check(item: UpstreamItem, definition: dict[str, Any]) -> None:
    """Raise NotAcceptable for a definition that the hub cannot offer."""
    for problem in _problems(item, definition):
        raise NotAcceptable(f"'{item.name}': {problem}")


def _problems(item: UpstreamItem, definition: dict[str, Any]) -> Iterator[str]:
    if len(str(definition.get("description") or "")) > MAX_DESCRIPTION_LENGTH:
        yield f"its description has more than {MAX_DESCRIPTION_LENGTH} characters."
    for name, wanted in (("annotations", dict), ("icons", list), ("_meta", dict), ("arguments", list)):
        if not isinstance(definition.get(name), wanted | None):
            yield f"its {name} are invalid."
    yield from _icon_problems(definition.get("icons"))
    name = offered_name(item.upstream, item.name)
    match item.kind:
        case ItemKind.TOOL:
            yield from _tool_problems(item, name, definition)
        case ItemKind.PROMPT:
            yield from _invalid(PROMPT_NAME, name)
            yield from _taken(Prompt.objects.filter(tenant=item.tenant_id, name=name), item.prompt_id)
            arguments = definition.get("arguments") or []
            if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in arguments):
                yield "its arguments are invalid."
        case _:
            yield from _invalid(RESOURCE_URI, item.name)
            yield from _taken(Resource.objects.filter(tenant=item.tenant_id, uri=item.name), item.resource_id)
            try:
                variables = uri_templates.parse(item.name).variables
            except ValueError as problem:
                yield f"its URI is invalid: {problem}."
            else:
                if bool(variables) != (item.kind == ItemKind.TEMPLATE):
                    yield "its URI is not a template." if item.kind == ItemKind.TEMPLATE else "its URI is a template."


def _icon_problems(icons: Any) -> Iterator[str]:
    """Yield the errors of icons in the fields that this hub knows; revisions add others."""
    known = ("src", "mimeType", "sizes")
    own = [
        {name: icon[name] for name in known if name in icon} if isinstance(icon, dict) else icon
        for icon in (icons if isinstance(icons, list) else ())
    ]
    yield from (f"its icons are invalid: {fault}" for fault in check_icons(own))


def _tool_problems(item: UpstreamItem, name: str, definition: dict[str, Any]) -> Iterator[str]:
    yield from _invalid(TOOL_NAME, name)
    yield from _taken(Tool.objects.filter(tenant=item.tenant_id, name=name), item.tool_id)
    if fault := reserved_fault(item.tenant, name, item.tool_id):
        yield fault
    schema, output = definition.get("inputSchema"), definition.get("outputSchema")
    if not isinstance(schema, dict) or not isinstance(output, dict | None):
        yield "its schemas are invalid."
        return
    try:
        CompiledSchema(schema)
        CompiledSchema(output or {})
        mirrored(schema)
    except (BadSchema, BadMirror) as problem:
        yield f"its schemas cannot be used: {str(problem)[:500]}"
    annotations = definition.get("annotations")
    hints = annotations.items() if isinstance(annotations, dict) else ()
    for found in check_tool_annotations({hint: value for hint, value in hints if hint in {*HINTS, "title"}}):
        yield f"its annotations are invalid: {found}"


def _invalid(validator: Any, name: str) -> Iterator[str]:
    try:
        validator(name)
    except ValidationError as problem:
        yield f"it would be offered as {name!r}. {problem.message}"


def _taken(rows: Any, own: Any) -> Iterator[str]:
    row = rows.exclude(pk=own).first()
    if row is not None:
        yield f"this tenant already has one named {row}. Give the upstream another prefix."


def _tool(item: UpstreamItem, definition: dict[str, Any]) -> Tool:
    tool = item.tool or Tool(tenant_id=item.tenant_id, timeout_seconds=item.upstream.timeout_seconds)
    tool.kind = ToolKind.UPSTREAM
    tool.name = offered_name(item.upstream, item.name)
    tool.title = str(definition.get("title") or "")[:MAX_TITLE_LENGTH]
    tool.description = str(definition.get("description") or "")
    tool.input_schema = definition["inputSchema"]
    tool.output_schema = definition.get("outputSchema")
    tool.annotations = definition.get("annotations") or {}
    tool.icons = definition.get("icons") or []
    execution = definition.get("execution")
    support = execution.get("taskSupport") if isinstance(execution, dict) else None
    tool.task = TaskSupport(support) if support in {TaskSupport.OPTIONAL, TaskSupport.REQUIRED} else TaskSupport.NEVER
    tool.config = {"upstream": item.upstream.name, "tool": item.name, "meta": definition.get("_meta") or {}}
    return tool


def _resource(item: UpstreamItem, definition: dict[str, Any]) -> Resource:
    resource = item.resource or Resource(tenant_id=item.tenant_id)
    resource.kind, resource.uri = ResourceKind.UPSTREAM, item.name
    resource.name = str(definition.get("name") or item.name)[:MAX_TITLE_LENGTH]
    resource.title = str(definition.get("title") or "")[:MAX_TITLE_LENGTH]
    resource.description = str(definition.get("description") or "")
    resource.mime_type = str(definition.get("mimeType") or "")[:MAX_TITLE_LENGTH]
    resource.annotations = definition.get("annotations") or {}
    resource.icons = definition.get("icons") or []
    resource.config = {"upstream": item.upstream.name}
    return resource


def _prompt(item: UpstreamItem, definition: dict[str, Any]) -> Prompt:
    prompt = item.prompt or Prompt(tenant_id=item.tenant_id)
    prompt.kind, prompt.name = PromptKind.UPSTREAM, offered_name(item.upstream, item.name)
    prompt.title = str(definition.get("title") or "")[:MAX_TITLE_LENGTH]
    prompt.description = str(definition.get("description") or "")
    prompt.icons = definition.get("icons") or []
    prompt.arguments = [
        {
            "name": one["name"],
            "description": str(one.get("description") or ""),
            "required": one.get("required") is True,
        }
        for one in definition.get("arguments") or []
    ]
    prompt.config = {"upstream": item.upstream.name, "prompt": item.name}
    return prompt


def _needs_credential(upstream: Upstream, problem: Exception) -> bool:
    return bool(upstream.credential) and isinstance(problem, Refused) and problem.status in UNAUTHORIZED


def _failure(problem: Exception, scrubber: Scrubber) -> UpstreamFailed:
    """Return a failure as it may be shown and stored: an upstream may repeat the credential that it was sent."""
    match problem:
        case UpstreamFailed():
            message, cause = problem.message, problem.cause
        case ErrorResponse():
            message, cause = f"The upstream answered with error {problem.code}: {problem.message}", ""
        case TimeoutError():
            message, cause = f"The upstream did not answer within {DISCOVERY_SECONDS:g} seconds.", ""
        case _:
            message, cause = str(problem), ""
    return UpstreamFailed(scrubber.text(sanitized(message)), scrubber.text(sanitized(cause)))
