"""Operations of API sources in a configuration file: their request, and which fields were overridden."""

from collections.abc import Mapping
from typing import Any

from tools_app.catalog.kinds.openapi.sources.plan import GENERATED, OVERRIDABLE
from tools_app.models import ApiSource, Tool
from tools_app.tenant_config.fields import Row

# Besides the fields of `OperationConfig`.
OWN = ("source", "key", "overridden")


def described(tool: Tool) -> Row:
    """Return the operation of a tool as a file describes it."""
    overridden = [name for name in OVERRIDABLE if getattr(tool, name) != tool.generated.get(name)]
    return {
        "source": tool.source.name if tool.source else "",
        "key": tool.operation,
        **({"overridden": overridden} if overridden else {}),
        **tool.config,
    }


def adopt(row: Any, into: Tool, sources: Mapping[str, ApiSource]) -> None:
    """Write the operation of a row into a tool whose other fields are set already.

    What a file says is overridden stays so. The value that the document made of it is kept if it is known.
    """
    values = {name: row[name] for name in OWN if name in row}
    source, key = values.get("source"), values.get("key")
    into.source = sources.get(source) if isinstance(source, str) else None
    into.operation = key if isinstance(key, str) else ""
    into.config = {name: value for name, value in row.items() if name not in OWN}
    before: Mapping[str, Any] = into.generated
    generated = {name: getattr(into, name) for name in GENERATED}
    overridden = values.get("overridden")
    for name in overridden if isinstance(overridden, list) else ():
        if name in OVERRIDABLE:
            generated[name] = before.get(name) if before.get(name) != generated[name] else None
    into.generated = {**generated, "enabled": before.get("enabled", False)}


def forget(into: Tool) -> None:
    """Make a tool that is no operation one of no source."""
    into.source, into.operation, into.generated = None, "", {}
