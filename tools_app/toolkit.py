"""What the author of a tool imports: `from tools_app.toolkit import ToolContext, ToolError, tool`."""

from tools_app.execution.context import ToolContext
from tools_app.execution.results import ToolError, ToolResult

__all__ = ["ToolContext", "ToolError", "ToolResult"]
