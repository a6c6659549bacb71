"""Tools for operations of API sources, whose OpenAPI documents describe the requests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tools_app.catalog.kinds.base import Compilation, Implementation, Kind, written
from tools_app.catalog.kinds.http.config import ConfigProblem
from tools_app.catalog.kinds.openapi.attachments import Attachments
from tools_app.catalog.kinds.openapi.config import parse_operation
from tools_app.catalog.kinds.openapi.runner import operation_runner, settings_of
from tools_app.catalog.validation.items import described_faults
from tools_app.models import ApiSource, Tenant, Tool

# Fields that people may override.
OVERRIDABLE: Final = ("title", "description", "input_schema", "output_schema", "annotations")
GENERATED: Final = (*OVERRIDABLE, "config")
# In a file, besides the fields of `OperationConfig`.
FILE_FIELDS: Final = ("source", "key", "overridden")


class OperationKind(Kind):
    """`Tool.config` has the fields of `catalog.kinds.openapi.config.OperationConfig`, as imported from the document."""

    name = "operation"
    config_help = "Of an API operation: read-only, as imported from its API source."
    file_field = "operation"
    file_hint = "must be an object with source, key, overridden, method, path and the other fields of the request."

    def faults(self, tool: Tool) -> Iterator[tuple[str, str]]:
        """Yield the errors of the definition, and of an operation that belongs to no source of the tenant."""
        if tool.source is None or tool.source.tenant_id != tool.tenant_id:
            yield "kind", "Operations belong to an API source of this tenant. Add the source, and import them from it."
            return
        yield from described_faults(tool)
        try:
            parse_operation(tool.config)
        except ConfigProblem as problem:
            yield f"config.{problem.field}", problem.message

    def request_faults(self, tool: Tool, _given: dict[str, Any], former: Tool | None) -> Mapping[str, Iterable[str]]:
        """Return an error if the request changes what the document describes."""
        if former is not None and tool.config != former.config:
            return {"config": ["The document of the API source describes the request. Remove this field."]}
        return {}

    def compile(self, tool: Tool, compilation: Compilation) -> Implementation:
        """Return the tool with the request of its operation. Raises ValueError."""
        tenant, source = compilation.tenant, tool.source
        if source is None or source.tenant_id != tenant.pk:
            raise ValueError("its API source is missing")
        config = parse_operation(tool.config)
        run = operation_runner(
            config,
            settings_of(source, source.servers, source.schemes),
            compilation.secrets,
            tenant.allowed_networks,
            tool.timeout_seconds,
            output_schema=tool.output_schema,
        )
        attachments = Attachments(config)
        return written(tool, run, attachments.uris if attachments else None)

    def clone_problem(self, tool: Tool, tenant: Tenant) -> str:
        """Refuse a tenant that does not have the source."""
        if tool.source is None or tool.source.tenant_id == tenant.pk:
            return ""
        return f"{tenant} does not have the API source of this tool. Import the API there."

    def origin(self, tool: Tool, _config: Mapping[str, Any]) -> str:
        """Return the source, and the operation in its document."""
        return f"API source {tool.source.name if tool.source else '(deleted)'}: {tool.operation}"

    def to_file(self, tool: Tool) -> Any:
        """Return the operation: its source, its key, what people overrode, and its request."""
        overridden = [name for name in OVERRIDABLE if getattr(tool, name) != tool.generated.get(name)]
        return {
            "source": tool.source.name if tool.source else "",
            "key": tool.operation,
            **({"overridden": overridden} if overridden else {}),
            **tool.config,
        }

    def file_config(self, value: Any) -> Mapping[str, Any]:
        """Return the request of an operation."""
        return {name: part for name, part in value.items() if name not in FILE_FIELDS}

    def from_file(self, tool: Tool, value: Any, sources: Mapping[str, ApiSource]) -> None:
        """Write the source of an operation, and what the document made of the tool.

        What a file says is overridden stays so. The value that the document made of it is kept if it is known.
        """
        source, key, overridden = (value.get(name) for name in FILE_FIELDS)
        tool.source = sources.get(source) if isinstance(source, str) else None
        tool.operation = key if isinstance(key, str) else ""
        before: Mapping[str, Any] = tool.generated
        generated = {name: getattr(tool, name) for name in GENERATED}
        for name in overridden if isinstance(overridden, list) else ():
            if name in OVERRIDABLE:
                generated[name] = before.get(name) if before.get(name) != generated[name] else None
        tool.generated = {**generated, "enabled": before.get("enabled", False)}


KIND = OperationKind()
