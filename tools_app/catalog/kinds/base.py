"""The interface of all kinds of tools: a definition and a runner."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import Result


@dataclass(frozen=True)
class ToolDefinition:
    """The definition of a tool for clients (tools, §Tool), for all kinds."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    annotations: Mapping[str, Any]
    icons: Sequence[Mapping[str, Any]] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


class Runner(Protocol):
    """Runs one tool, or reads one resource or prompt, with validated arguments.

    Raises ToolError for a failure that the model may read, CallCancelled when the call was cancelled; any other
    exception becomes a generic error for the client and a cause in the audit log.
    """

    def __call__(self, arguments: dict[str, Any], context: ToolContext) -> Coroutine[Any, Any, Result]:
        """Run the tool."""
