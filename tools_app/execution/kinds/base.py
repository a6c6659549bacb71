"""What every kind of tool offers to the execution: one definition, and one way to run."""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tools_app.execution.context import ToolContext
from tools_app.execution.results import ToolResult


@dataclass(frozen=True)
class ToolDefinition:
    """What a client sees of a tool (tools, §Tool), whatever its kind."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    annotations: Mapping[str, Any]


class Runner(Protocol):
    """Runs one tool with arguments that already passed its schema.

    Raises ToolError for a failure that the model may read, CallCancelled when the call was cancelled; any other
    exception becomes a generic error for the client and a cause for the auditor.
    """

    def __call__(self, arguments: dict[str, Any], context: ToolContext) -> Coroutine[Any, Any, ToolResult]:
        """Run the tool."""
