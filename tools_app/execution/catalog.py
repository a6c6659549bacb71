"""What a tenant offers now, compiled for calls: schemas ready to check, runners ready to run.

A catalog is compiled once per version. Requests find it in memory, never older than one second; a doorbell makes
them look at once.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from threading import Lock
from typing import Any
from uuid import UUID

import orjson

from tools_app.auth import allowance, vault
from tools_app.auth.allowance import Allowance
from tools_app.auth.ring import Ring
from tools_app.execution import authoring
from tools_app.execution.kinds import http, python, written
from tools_app.execution.kinds.base import Runner, ToolDefinition
from tools_app.execution.offers import prompts, resources, uris
from tools_app.execution.offers.completion import Completer
from tools_app.execution.offers.prompts import PromptDefinition, Render
from tools_app.execution.offers.resources import Read, ResourceDefinition
from tools_app.models import Prompt, PromptKind, Resource, ResourceKind, TaskSupport, Tenant, Tool, ToolKind
from tools_app.protocol.mirrored import BadMirror, Mirrored, mirrored
from tools_app.protocol.schema import BadSchema, CompiledSchema

log = logging.getLogger(__name__)

OPEN_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class CompiledTool:
    """A tool ready to run. `allowed` is what all its callers may use up, `mirrored` are the parameters that clients
    repeat in headers.
    """

    id: UUID
    revision: int
    definition: ToolDefinition
    arguments: CompiledSchema
    output: CompiledSchema | None
    run: Runner
    background: bool
    task: TaskSupport
    timeout_seconds: float
    allowed: Allowance
    mirrored: tuple[Mirrored, ...]

    @property
    def method(self) -> str:
        """How clients ask for it."""
        return "tools/call"

    @property
    def name(self) -> str:
        """The name under which clients call it."""
        return self.definition.name

    @property
    def read_only(self) -> bool:
        """Whether the tool says that it changes nothing, so that it may start before its intent is durable."""
        return self.definition.annotations.get("readOnlyHint") is True


@dataclass(frozen=True, slots=True)
class CompiledResource:
    """A resource ready to be read, or a template for many. `changed_at` is when what it holds changed last."""

    definition: ResourceDefinition
    template: uris.UriTemplate
    read: Read
    timeout_seconds: float
    completers: Mapping[str, Completer]
    changed_at: datetime

    @property
    def name(self) -> str:
        """What it is found by."""
        return self.definition.uri


@dataclass(frozen=True, slots=True)
class CompiledPrompt:
    """A prompt ready to be asked for. `arguments` says which texts it takes; None if it takes all."""

    definition: PromptDefinition
    render: Render
    timeout_seconds: float
    completers: Mapping[str, Completer]
    arguments: CompiledSchema | None = None

    @property
    def name(self) -> str:
        """The name under which clients ask for it."""
        return self.definition.name


@dataclass(frozen=True, slots=True)
class Catalog:
    """What one tenant offers, each kind by name or URI and in that order. `digests` tell what lists changed."""

    tenant_id: UUID
    tenant_slug: str
    version: int
    tools: Mapping[str, CompiledTool]
    resources: Mapping[str, CompiledResource]
    templates: Mapping[str, CompiledResource]
    prompts: Mapping[str, CompiledPrompt]
    digests: Mapping[str, str]

    def find_resource(self, uri: str) -> tuple[CompiledResource, dict[str, str]] | None:
        """What `uri` names, with the values that its template gives to its variables."""
        exact = self.resources.get(uri)
        if exact is not None:
            return exact, {}
        for resource in self.templates.values():
            variables = resource.template.match(uri)
            if variables is not None:
                return resource, variables
        return None


_compiled: dict[UUID, Catalog] = {}
_compiling = Lock()


def load(tenant_ids: Sequence[UUID]) -> Mapping[UUID, Catalog]:
    """The catalogs of these tenants as the database has them now; only those that changed are compiled."""
    tenants = Tenant.objects.filter(pk__in=tenant_ids, is_active=True)
    return {tenant.pk: _current(tenant) for tenant in tenants}


ring: Ring[UUID, Catalog] = Ring(load)


def forget_all() -> None:
    """Drop every catalog (tests, where the database is emptied under the hub)."""
    _compiled.clear()
    ring.forget_all()


def _current(tenant: Tenant) -> Catalog:
    with _compiling:
        known = _compiled.get(tenant.pk)
        if known is None or known.version != tenant.catalog_version:
            known = _compiled[tenant.pk] = _compile(tenant)
        return known


def _compile(tenant: Tenant) -> Catalog:
    secrets = _secrets(tenant)
    tools = _by_name(_compile_tool(row, tenant, secrets) for row in Tool.objects.filter(tenant=tenant, enabled=True))
    found = Resource.objects.filter(tenant=tenant, enabled=True).defer("text", "blob")
    readable = _by_name(_compile_resource(row, tenant, secrets) for row in found)
    offered = _by_name(_compile_prompt(row, tenant) for row in Prompt.objects.filter(tenant=tenant, enabled=True))
    return Catalog(
        tenant_id=tenant.pk,
        tenant_slug=tenant.slug,
        version=tenant.catalog_version,
        tools=tools,
        resources={uri: one for uri, one in readable.items() if not one.template.variables},
        templates={uri: one for uri, one in readable.items() if one.template.variables},
        prompts=offered,
        digests={"tools": _digest(tools), "resources": _digest(readable), "prompts": _digest(offered)},
    )


def _by_name(compiled: Iterable[Any]) -> dict[str, Any]:
    return {one.name: one for one in sorted((one for one in compiled if one is not None), key=lambda one: one.name)}


def _digest(offered: Mapping[str, Any]) -> str:
    definitions = [asdict(one.definition) for one in offered.values()]
    return hashlib.sha256(orjson.dumps(definitions, option=orjson.OPT_SORT_KEYS, default=str)).hexdigest()


def _compile_tool(row: Tool, tenant: Tenant, secrets: Mapping[str, str]) -> CompiledTool | None:
    """A tool that cannot be compiled is left out, so that it takes no other tool with it."""
    try:
        return _python_tool(row) if row.kind == ToolKind.PYTHON else _http_tool(row, tenant, secrets)
    except (python.UnknownFunction, http.ConfigProblem, BadSchema, BadMirror) as problem:
        log.warning("Tool %s of tenant %s is left out: %s", row.name, tenant.slug, problem)
        return None


def _python_tool(row: Tool) -> CompiledTool:
    function = python.registered(row.config.get("function", ""))
    code = function.definition
    definition = ToolDefinition(
        row.name, code.title, code.description, code.input_schema, code.output_schema, code.annotations, code.icons
    )
    return _compiled_tool(
        row,
        definition,
        function.run,
        background=function.background,
        task=function.task,
        timeout_seconds=function.timeout_seconds,
    )


def _http_tool(row: Tool, tenant: Tenant, secrets: Mapping[str, str]) -> CompiledTool:
    definition = ToolDefinition(
        row.name, row.title, row.description, row.input_schema, row.output_schema, row.annotations, row.icons
    )
    config = http.parse_config(row.config)
    run = http.http_runner(config, secrets, tenant.allowed_networks, row.timeout_seconds, row.output_schema)
    return _compiled_tool(
        row,
        definition,
        run,
        background=row.background,
        task=TaskSupport(row.task),
        timeout_seconds=row.timeout_seconds,
    )


def _compiled_tool(
    row: Tool, definition: ToolDefinition, run: Runner, *, background: bool, task: TaskSupport, timeout_seconds: float
) -> CompiledTool:
    schema = definition.input_schema or OPEN_OBJECT
    return CompiledTool(
        id=row.pk,
        revision=row.revision,
        definition=definition,
        arguments=CompiledSchema(schema),
        output=CompiledSchema(definition.output_schema) if definition.output_schema else None,
        run=run,
        background=background,
        task=task,
        timeout_seconds=timeout_seconds,
        allowed=allowance.of_tool(row),
        mirrored=mirrored(schema),
    )


def _compile_resource(row: Resource, tenant: Tenant, secrets: Mapping[str, str]) -> CompiledResource | None:
    try:
        return _python_resource(row) if row.kind == ResourceKind.PYTHON else _written_resource(row, tenant, secrets)
    except (python.UnknownFunction, http.ConfigProblem, uris.BadTemplate) as problem:
        log.warning("Resource %s of tenant %s is left out: %s", row.uri, tenant.slug, problem)
        return None


def _python_resource(row: Resource) -> CompiledResource:
    function = resources.registered(row.config.get("function", ""))
    if function is None:
        raise python.UnknownFunction(row.uri)
    return CompiledResource(
        function.definition,
        uris.parse(row.uri),
        function.read,
        function.timeout_seconds,
        function.function.completers,
        row.updated_at,
    )


def _written_resource(row: Resource, tenant: Tenant, secrets: Mapping[str, str]) -> CompiledResource:
    definition = ResourceDefinition(
        row.uri, row.name, row.title, row.description, row.mime_type, row.annotations, row.icons
    )
    read = written.reader(row, secrets, tenant.allowed_networks)
    return CompiledResource(definition, uris.parse(row.uri), read, row.timeout_seconds, {}, row.updated_at)


def _compile_prompt(row: Prompt, tenant: Tenant) -> CompiledPrompt | None:
    if row.kind != PromptKind.PYTHON:
        return CompiledPrompt(
            written.prompt_definition(row), written.renderer(row), prompts.TIMEOUT_SECONDS, written.completers(row)
        )
    function = prompts.registered(row.config.get("function", ""))
    if function is None:
        log.warning("Prompt %s of tenant %s is left out: no installed app registers it", row.name, tenant.slug)
        return None
    code = function.function
    return CompiledPrompt(
        function.definition, function.render, prompts.TIMEOUT_SECONDS, code.completers, code.arguments
    )


def _secrets(tenant: Tenant) -> dict[str, str]:
    opened: dict[str, Any] = {}
    for secret in tenant.secrets.all():
        try:
            opened[secret.name] = authoring.open_secret(secret)
        except vault.Unsealable:
            log.warning("Secret %s of tenant %s was sealed under another key", secret.name, tenant.slug)
    return opened
