"""Compiled catalogs of tenants: schemas ready to validate, runners ready to run.

A catalog is compiled once per version. Requests use a cache that is at most one second old; a notification refreshes it
immediately. Celery workers compare versions before each call.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from threading import Lock
from typing import Any
from uuid import UUID

import orjson

from tools_app.catalog import authoring, stored, uri_templates
from tools_app.catalog import prompt_functions as prompts
from tools_app.catalog import resource_functions as resources
from tools_app.catalog.completion import Completer
from tools_app.catalog.kinds.base import Compilation, NamedResources, Runner, ToolDefinition, kind_of
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.kinds.upstream import runner as upstream
from tools_app.catalog.kinds.upstream.kind import source_of
from tools_app.catalog.prompt_functions import PromptDefinition, Render
from tools_app.catalog.resource_functions import Read, ResourceDefinition
from tools_app.catalog.shaping import Shaping, shaping_of
from tools_app.catalog.tokens import tokens_of
from tools_app.catalog.toolsets import CompiledToolset, Resolver, toolset_list
from tools_app.core.bounded_cache import BoundedCache
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.core.telemetry.logs import first_of
from tools_app.identity.principal import Principal
from tools_app.models import (
    Presentation,
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    TaskSupport,
    Tenant,
    Tool,
    Toolset,
)
from tools_app.protocol.content import hints
from tools_app.protocol.mirrored import Mirrored, mirrored
from tools_app.protocol.schema import CompiledSchema
from tools_app.protocol.tool_schemas import arguments_schema, result_schema
from tools_app.protocol.unchecked_patterns import without_foreign_patterns
from tools_app.tenants.limits import quotas
from tools_app.tenants.limits.quotas import CallerLimits

log = logging.getLogger(__name__)

OPEN_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class CompiledTool:
    """A tool ready to run, under the name that clients use.

    `read_only` means that it changes nothing, so it may start before its intent is durable. `allowed` are the limits
    that all its callers share, `mirrored` the parameters that clients repeat in headers, `method` the MCP method that
    runs it. `needs_person` means that it is offered only to callers that act for a person. `aliases` are other words by
    which a search finds it, and `tokens` is about what it costs in a list; `pinned` means that it is listed even where
    tools are searched. Tools of the hub itself have no `id`. `named_resources` returns the resources that
    arguments name.
    """

    id: UUID | None
    name: str
    revision: int
    read_only: bool
    definition: ToolDefinition
    arguments: CompiledSchema
    output: CompiledSchema | None
    run: Runner
    background: bool
    task: TaskSupport
    timeout_seconds: float
    allowed: CallerLimits
    mirrored: tuple[Mirrored, ...]
    method: str = "tools/call"
    needs_person: bool = False
    aliases: tuple[str, ...] = ()
    pinned: bool = False
    tokens: int = 0
    shaping: Shaping | None = None
    named_resources: NamedResources | None = None


@dataclass(frozen=True, slots=True)
class CompiledResource:
    """A resource ready to be read, or a resource template. `changed_at` is the last change of its contents."""

    definition: ResourceDefinition
    template: uri_templates.UriTemplate
    read: Read
    timeout_seconds: float
    completers: Mapping[str, Completer]
    changed_at: datetime

    @property
    def name(self) -> str:
        """The key under which it is found."""
        return self.definition.uri


@dataclass(frozen=True, slots=True)
class CompiledPrompt:
    """A prompt ready to be rendered. `arguments` validates its arguments; None if it accepts all."""

    definition: PromptDefinition
    render: Render
    timeout_seconds: float
    completers: Mapping[str, Completer]
    arguments: CompiledSchema | None = None

    @property
    def name(self) -> str:
        """The name that clients use."""
        return self.definition.name


@dataclass(frozen=True, slots=True)
class Catalog:
    """The catalog of one tenant: each kind by name or URI, sorted. `digests` show which lists changed: also those of
    the callers with a toolset, and of those whose tools may be searched. `presentation` and `search_above_tokens` are
    the tenant's settings of how tools are listed.

    `not_offered` says of rows that are enabled and cannot be compiled why they are left out, by their ids.

    `size` is its length as JSON in bytes, and that of the names of its toolsets. `version` is the tenant's whole row,
    which includes the version of its tools, resources, prompts and secrets: a change of any field of these compiles the
    catalog again.
    """

    tenant_id: UUID
    tenant_slug: str
    version: bytes
    tools: Mapping[str, CompiledTool]
    resources: Mapping[str, CompiledResource]
    templates: Mapping[str, CompiledResource]
    prompts: Mapping[str, CompiledPrompt]
    digests: Mapping[str, str]
    size: int = 0
    toolsets: Mapping[UUID, CompiledToolset] = field(default_factory=dict)
    presentation: str = Presentation.FULL.value
    search_above_tokens: int = 0
    not_offered: Mapping[UUID, str] = field(default_factory=dict)

    def in_toolset(self, toolset: UUID, name: str) -> bool:
        """Whether a toolset has the tool of this name. One that the tenant does not have, has none.

        Of a name that no tool has now, its entries decide: tasks outlast their tools.
        """
        found = self.toolsets.get(toolset)
        return found is not None and (name in found.names or (name not in self.tools and found.covers(name)))

    def find_resource(self, uri: str) -> tuple[CompiledResource, dict[str, str]] | None:
        """Return the resource that `uri` names, and the values of its template's variables."""
        exact = self.resources.get(uri)
        if exact is not None:
            return exact, {}
        for resource in self.templates.values():
            variables = resource.template.match(uri)
            if variables is not None:
                return resource, variables
        return None


def permits_uri(found: Catalog | None, principal: Principal, method: str, uri: str) -> bool:
    """Whether there is a resource with this URI, by itself or by a template, with which the caller may use a method."""
    named = found.find_resource(uri) if found is not None else None
    return named is not None and principal.may("resource", method, named[0].name, found)


# Bytes of the definitions as JSON. An evicted catalog is compiled again on its next use.
MAX_COMPILED_BYTES = 256 * 1024 * 1024
MAX_COMPILED = 20_000
_compiled: BoundedCache[UUID, Catalog] = BoundedCache(MAX_COMPILED, MAX_COMPILED_BYTES)
# The versions that could not be compiled, by tenant.
_failed: dict[UUID, bytes] = {}
_compiling = Lock()


def load(tenant_ids: Sequence[UUID]) -> Mapping[UUID, Catalog]:
    """Return the current catalogs of these tenants from the database; only those that changed are compiled.

    A tenant whose catalog cannot be compiled has none, so that the others keep theirs. It is tried and logged once for
    each version: catalogs in use are loaded several times a second.
    """
    found: dict[UUID, Catalog] = {}
    for tenant in Tenant.objects.filter(pk__in=tenant_ids, is_active=True):
        if tenant.pk in _failed and _failed[tenant.pk] == _version(tenant):
            continue
        try:
            found[tenant.pk] = of_tenant(tenant)
            _failed.pop(tenant.pk, None)
        except (TypeError, ValueError, RecursionError):
            log.exception("The catalog of tenant %s cannot be compiled", tenant.slug)
            _failed[tenant.pk] = _version(tenant)
    return found


cache: RefreshAheadCache[UUID, Catalog] = RefreshAheadCache(load, lambda found: found.size)


def forget_all() -> None:
    """Clear the cache (for tests, which empty the database)."""
    _compiled.clear()
    _failed.clear()
    cache.forget_all()


def of_tenant(tenant: Tenant) -> Catalog:
    """Return the current catalog of a tenant, whose row was just read."""
    version = _version(tenant)
    with _compiling:
        known = _compiled.get(tenant.pk)
        if known is None or known.version != version:
            known = _compile(tenant, version)
            _compiled.put(tenant.pk, known, known.size)
        return known


def _version(tenant: Tenant) -> bytes:
    return orjson.dumps([getattr(tenant, field.attname) for field in tenant._meta.concrete_fields], default=str)


def _compile(tenant: Tenant, version: bytes) -> Catalog:
    sources = Sources(tenant)
    rows = Tool.objects.filter(tenant=tenant, enabled=True).select_related("source").defer("generated")
    tools = _by_name(rows, _compile_tool, sources)
    found = Resource.objects.filter(tenant=tenant, enabled=True).defer("text", "blob")
    readable = _by_name(found, _compile_resource, sources)
    offered = _by_name(Prompt.objects.filter(tenant=tenant, enabled=True), _compile_prompt, sources)
    if sources.not_offered:
        count, shown = len(sources.left_out), first_of(sources.left_out)
        log.warning("%d rows of tenant %s are not offered: %s", count, tenant.slug, shown)
    resolver = Resolver(tools)
    toolsets = {row.pk: resolver.resolve(row.tools) for row in Toolset.objects.filter(tenant=tenant)}
    pinned = [name for name, tool in tools.items() if tool.pinned]
    lists = {
        "tools": _inline_definitions(tools),
        "resources": _inline_definitions(readable),
        "prompts": _inline_definitions(offered),
        # What lists depend on besides the definitions, by the name of the list.
        PRESENTED_KINDS: orjson.dumps([tenant.presentation, tenant.search_above_tokens, pinned]),
        **{toolset_list(id): toolset.as_bytes() for id, toolset in toolsets.items()},
    }
    return Catalog(
        tenant_id=tenant.pk,
        tenant_slug=tenant.slug,
        version=version,
        tools=tools,
        resources={uri: one for uri, one in readable.items() if not one.template.variables},
        templates={uri: one for uri, one in readable.items() if one.template.variables},
        prompts=offered,
        digests={name: hashlib.sha256(text).hexdigest() for name, text in lists.items()},
        size=sum(map(len, lists.values())) + sum(one.size for one in toolsets.values()),
        toolsets=toolsets,
        presentation=tenant.presentation,
        search_above_tokens=tenant.search_above_tokens,
        not_offered=sources.not_offered,
    )


# The name of the list that is shown where tools may be searched, in the digests of a catalog.
PRESENTED_KINDS = "presented"


class Sources(Compilation):
    """What the rows of a tenant are compiled with, and what comes of it.

    `not_offered` collects why rows are left out, `left_out` the same with their names.
    """

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(tenant, authoring.decrypted_secrets(tenant))
        self.not_offered: dict[UUID, str] = {}
        self.left_out: list[str] = []

    def leave_out(self, row: Tool | Resource | Prompt, reason: object) -> None:
        """Note why a row is not offered, so that the others stay available."""
        self.not_offered[row.pk] = str(reason)
        name = row.uri if isinstance(row, Resource) else row.name
        self.left_out.append(f"{row._meta.verbose_name} {name}: {reason}")


def _by_name(rows: Iterable[Any], compile_row: Callable[[Any, Sources], Any], sources: Sources) -> dict[str, Any]:
    """Compile rows, sorted by name. One that cannot be compiled is left out, so that the others stay available."""
    found = []
    for row in rows:
        try:
            found.append(compile_row(row, sources))
        except (python.UnknownFunction, ValueError) as problem:
            sources.leave_out(row, problem)
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}


def _inline_definitions(offered: Mapping[str, Any]) -> bytes:
    definitions = [asdict(one.definition) for one in offered.values()]
    return orjson.dumps(definitions, option=orjson.OPT_SORT_KEYS, default=str)


def _compile_tool(row: Tool, sources: Sources) -> CompiledTool:
    kind = kind_of(row.kind)
    made = kind.compile(row, sources)
    definition = made.definition
    shaping, schema = shaping_of(row), arguments_schema(definition.input_schema or OPEN_OBJECT)
    output = result_schema(definition.output_schema) if definition.output_schema else None
    # A shaped result need not match the schema of the whole.
    shown = without_foreign_patterns(output) if output and not shaping else None
    definition = replace(definition, input_schema=schema, output_schema=shown)
    return CompiledTool(
        id=row.pk,
        name=definition.name,
        revision=row.revision,
        read_only=(hints(definition.annotations) or {}).get("readOnlyHint") is True,
        definition=definition,
        arguments=CompiledSchema(schema, lenient=kind.lenient),
        output=CompiledSchema(output, lenient=kind.lenient) if output else None,
        run=made.run,
        background=made.background,
        task=made.task,
        timeout_seconds=made.timeout_seconds,
        allowed=quotas.of_tool(row),
        mirrored=mirrored(schema),
        needs_person=made.needs_person,
        aliases=tuple(row.aliases),
        pinned=row.pinned,
        shaping=shaping,
        tokens=tokens_of({"name": row.name, "description": definition.description, "input_schema": schema}),
        named_resources=made.named_resources,
    )


def _compile_resource(row: Resource, sources: Sources) -> CompiledResource:
    if row.kind == ResourceKind.PYTHON:
        function = resources.registered(row.config.get("function", ""))
        if function is None:
            raise python.UnknownFunction(row.uri)
        return CompiledResource(
            function.definition,
            uri_templates.parse(row.uri),
            function.read,
            function.timeout_seconds,
            function.function.completers,
            row.updated_at,
        )
    definition = ResourceDefinition(
        row.uri, row.name, row.title, row.description, row.mime_type, row.annotations, row.icons
    )
    read: Read
    template, completers = uri_templates.parse(row.uri), {}
    if row.kind == ResourceKind.UPSTREAM:
        source = source_of(row, sources)
        read, completers = upstream.UpstreamReader(source), source.completers(template.variables)
    else:
        read = stored.reader(row, sources.secrets, sources.tenant.allowed_networks)
    return CompiledResource(definition, template, read, row.timeout_seconds, completers, row.updated_at)


def _compile_prompt(row: Prompt, sources: Sources) -> CompiledPrompt:
    if row.kind == PromptKind.PYTHON:
        function = prompts.registered(row.config.get("function", ""))
        if function is None:
            raise ValueError("no installed app registers it")
        code = function.function
        return CompiledPrompt(
            function.definition, function.render, prompts.TIMEOUT_SECONDS, code.completers, code.arguments
        )
    definition = stored.prompt_definition(row)
    if row.kind == PromptKind.UPSTREAM:
        source = source_of(row, sources)
        completers = source.completers(argument.name for argument in definition.arguments)
        return CompiledPrompt(definition, upstream.UpstreamRenderer(source), prompts.TIMEOUT_SECONDS, completers)
    return CompiledPrompt(definition, stored.renderer(row), prompts.TIMEOUT_SECONDS, stored.completers(row))
