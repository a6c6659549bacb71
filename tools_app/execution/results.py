"""What a tool gives back, and the errors by which it says why it gives nothing back."""

from typing import Any

import msgspec


class ToolResult(msgspec.Struct, frozen=True):
    """A tool's answer (tools, §Tool Result): content blocks as JSON objects, and the structured content if any.

    `cause` is what went wrong, for the auditor's eyes; it never leaves the hub.
    """

    content: list[dict[str, Any]]
    structured: Any = None
    is_error: bool = False
    cause: str = ""


class ToolError(Exception):
    """Raised by a tool to fail with a text that the model may read and act on."""


class CallCancelled(Exception):
    """Raised inside a tool when its call was cancelled."""


def text(value: str) -> dict[str, Any]:
    """A text content block."""
    return {"type": "text", "text": value}


def failed(message: str, cause: str = "") -> ToolResult:
    """A tool error whose text a model can act on."""
    return ToolResult(content=[text(message)], is_error=True, cause=cause)
