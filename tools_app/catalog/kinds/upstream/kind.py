"""Tools of upstream MCP servers, whose definitions are reviewed and accepted with their upstream."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from tools_app.catalog.kinds.base import Compilation, Implementation, Kind, ToolDefinition
from tools_app.catalog.kinds.upstream import runner
from tools_app.catalog.models import TOOL_SETTINGS
from tools_app.models import Prompt, Resource, TaskSupport, Tenant, Tool, UpstreamItem
from tools_app.protocol.mirrored import mirrored
from tools_app.protocol.tool_schemas import arguments_schema

ADDED_THERE = "Add the upstream, and accept what it offers."
DEFINED_THERE = "Defined by the upstream. Remove this field."
# What may be set for a row of an upstream.
OWN_FIELDS: Final = frozenset({*TOOL_SETTINGS, "timeout_seconds"})
FROM_UPSTREAM: Final = "An upstream defines this tool. Review its definition under Upstreams."


class UpstreamKind(Kind):
    """`Tool.config` is `{"upstream": NAME, "tool": its name there, "meta": {...}}`. Files leave these tools out."""

    name = "upstream"
    lenient = True
    history = FROM_UPSTREAM

    def faults(self, _tool: Tool) -> Iterator[tuple[str, str]]:
        """Yield nothing: the definition was checked when it was accepted."""
        yield from ()

    def request_faults(self, _tool: Tool, given: dict[str, Any], former: Tool | None) -> Mapping[str, Iterable[str]]:
        """Return an error for each value that the upstream defines."""
        return upstream_faults(given, former)

    def compile(self, tool: Tool, compilation: Compilation) -> Implementation:
        """Return the tool of an enabled upstream. Raises ValueError."""
        source = source_of(tool, compilation)
        schema = arguments_schema(tool.input_schema or {"type": "object"})
        task = TaskSupport(tool.task)
        run = runner.UpstreamTool(source, mirrored(schema), task == TaskSupport.REQUIRED)
        definition = ToolDefinition(
            tool.name,
            tool.title,
            tool.description,
            tool.input_schema,
            tool.output_schema,
            tool.annotations,
            tool.icons,
            tool.config.get("meta") or {},
        )
        # Never in a worker: the web process holds the connection, and knows the hubs that the request has passed.
        return Implementation(definition, run, background=False, task=task, timeout_seconds=tool.timeout_seconds)

    def restore_problem(self, _tool: Tool, _definition: Mapping[str, Any]) -> str:
        """Refuse: definitions are reviewed under Upstreams."""
        return FROM_UPSTREAM

    def clone_problem(self, _tool: Tool, _tenant: Tenant) -> str:
        """Refuse: the other tenant needs the upstream."""
        return "A tool of an upstream cannot be cloned. Add the upstream to the other tenant."

    def origin(self, _tool: Tool, config: Mapping[str, Any]) -> str:
        """Return the upstream, and the name of the tool there."""
        return f"upstream {config.get('upstream')}: {config.get('tool')}"


def upstream_faults(given: Mapping[str, Any], former: Any) -> Mapping[str, Iterable[str]]:
    """Return what is wrong with a request for a row of an upstream: it is not created, and its definition is fixed."""
    if former is None:
        return {"kind": [ADDED_THERE]}
    return {
        name: [DEFINED_THERE]
        for name, value in given.items()
        if name not in OWN_FIELDS and getattr(former, name) != value
    }


def source_of(row: Tool | Resource | Prompt, compilation: Compilation) -> runner.Source:
    """Return the upstream of a row. Raises ValueError if it was deleted or is disabled."""
    source = compilation.once(_sources).get(row.pk)
    if source is None:
        raise ValueError("its upstream is disabled or was deleted")
    return source


def _sources(compilation: Compilation) -> dict[UUID | None, runner.Source]:
    """Return the upstream of each row of the tenant by the id of the row."""
    tenant = compilation.tenant
    items = UpstreamItem.objects.filter(tenant=tenant, upstream__tenant=tenant, upstream__enabled=True).select_related(
        "upstream"
    )
    return {
        item.tool_id or item.resource_id or item.prompt_id: runner.source_of(item, tenant, compilation.secrets)
        for item in items.exclude(tool=None, resource=None, prompt=None).defer("accepted", "proposed", "warnings")
    }


KIND = UpstreamKind()
