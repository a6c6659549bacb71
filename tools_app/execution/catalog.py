"""What a tenant offers now, compiled for calls: schemas ready to check, runners ready to run.

A catalog is compiled once per version. Requests find it in memory, never older than one second; a doorbell makes
them look at once.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import UUID

from tools_app.auth import vault
from tools_app.auth.ring import Ring
from tools_app.execution import authoring
from tools_app.execution.kinds import http, python
from tools_app.execution.kinds.base import Runner, ToolDefinition
from tools_app.models import Tenant, Tool, ToolKind
from tools_app.protocol.schema import BadSchema, CompiledSchema

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompiledTool:
    """A tool ready to run."""

    id: UUID
    revision: int
    definition: ToolDefinition
    arguments: CompiledSchema
    output: CompiledSchema | None
    run: Runner
    background: bool
    timeout_seconds: float
    calls_per_minute: int | None

    @property
    def name(self) -> str:
        """The name under which clients call it."""
        return self.definition.name

    @property
    def read_only(self) -> bool:
        """Whether the tool says that it changes nothing, so that it may start before its intent is durable."""
        return self.definition.annotations.get("readOnlyHint") is True


@dataclass(frozen=True, slots=True)
class Catalog:
    """The enabled tools of one tenant by name, in the order of their names."""

    tenant_id: UUID
    tenant_slug: str
    version: int
    tools: Mapping[str, CompiledTool]


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
    rows = Tool.objects.filter(tenant=tenant, enabled=True).order_by("name")
    tools = {row.name: tool for row in rows if (tool := _compile_tool(row, tenant, secrets)) is not None}
    return Catalog(tenant.pk, tenant.slug, tenant.catalog_version, dict(sorted(tools.items())))


def _compile_tool(row: Tool, tenant: Tenant, secrets: Mapping[str, str]) -> CompiledTool | None:
    """A tool that cannot be compiled is left out, so that it takes no other tool with it."""
    try:
        return _python_tool(row) if row.kind == ToolKind.PYTHON else _http_tool(row, tenant, secrets)
    except (python.UnknownFunction, http.ConfigProblem, BadSchema) as problem:
        log.warning("Tool %s of tenant %s is left out: %s", row.name, tenant.slug, problem)
        return None


def _python_tool(row: Tool) -> CompiledTool:
    function = python.registered(row.config.get("function", ""))
    code = function.definition
    definition = ToolDefinition(
        row.name, code.title, code.description, code.input_schema, code.output_schema, code.annotations
    )
    return _compiled_tool(row, definition, function.run, function.background, function.timeout_seconds)


def _http_tool(row: Tool, tenant: Tenant, secrets: Mapping[str, str]) -> CompiledTool:
    definition = ToolDefinition(
        row.name, row.title, row.description, row.input_schema, row.output_schema, row.annotations
    )
    config = http.parse_config(row.config)
    run = http.http_runner(config, secrets, tenant.allowed_networks, row.timeout_seconds, row.output_schema)
    return _compiled_tool(row, definition, run, row.background, row.timeout_seconds)


def _compiled_tool(
    row: Tool, definition: ToolDefinition, run: Runner, background: bool, timeout_seconds: float
) -> CompiledTool:
    return CompiledTool(
        id=row.pk,
        revision=row.revision,
        definition=definition,
        arguments=CompiledSchema(definition.input_schema or {"type": "object"}),
        output=CompiledSchema(definition.output_schema) if definition.output_schema else None,
        run=run,
        background=background,
        timeout_seconds=timeout_seconds,
        calls_per_minute=row.calls_per_minute,
    )


def _secrets(tenant: Tenant) -> dict[str, str]:
    opened: dict[str, Any] = {}
    for secret in tenant.secrets.all():
        try:
            opened[secret.name] = authoring.open_secret(secret)
        except vault.Unsealable:
            log.warning("Secret %s of tenant %s was sealed under another key", secret.name, tenant.slug)
    return opened
