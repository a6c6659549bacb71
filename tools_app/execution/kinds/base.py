"""What every kind of tool offers to the execution: one definition, and one way to run."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tools_app.execution.context import ToolContext
from tools_app.execution.results import Result


@dataclass(frozen=True)
class ToolDefinition:
    """What a client sees of a tool (tools, §Tool), whatever its kind."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    annotations: Mapping[str, Any]
    icons: Sequence[Mapping[str, Any]] = ()


class Runner(Protocol):
    """Runs one tool, or reads one resource or prompt, with arguments that were checked.

    Raises ToolError for a failure that the model may read, CallCancelled when the call was cancelled; any other
    exception becomes a generic error for the client and a cause for the auditor.
    """

    def __call__(self, arguments: dict[str, Any], context: ToolContext) -> Coroutine[Any, Any, Result]:
        """Run the tool."""
