"""What tools, resources and prompts give back, and the errors by which they say why they give nothing back."""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from tools_app.protocol.errors import INTERNAL_ERROR, JSON_RPC, RESERVED

Block = dict[str, Any]


class ToolResult(msgspec.Struct, frozen=True):
    """A tool's answer (tools, §Tool Result): content blocks as JSON objects, and the structured content if any.

    `cause` is what went wrong, for the auditor's eyes; it never leaves the hub.
    """

    content: list[Block]
    structured: Any = None
    is_error: bool = False
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """The result as it goes over the wire."""
        body: dict[str, Any] = {"content": self.content}
        if self.structured is not None:
            body["structuredContent"] = self.structured
        body["isError"] = self.is_error
        return body


class ResourceResult(msgspec.Struct, frozen=True):
    """What `resources/read` answers (resources, §Resource Contents): objects with `uri` and `text` or `blob`."""

    contents: list[dict[str, Any]]
    is_error: bool = False
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """The result as it goes over the wire."""
        return {"contents": self.contents}


class PromptResult(msgspec.Struct, frozen=True):
    """What `prompts/get` answers (prompts, §PromptMessage): messages of a `user` or an `assistant`."""

    messages: list[dict[str, Any]]
    description: str = ""
    is_error: bool = False
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """The result as it goes over the wire."""
        described = {"description": self.description} if self.description else {}
        return {**described, "messages": self.messages}


class InputRequired(msgspec.Struct, frozen=True):
    """A run that ended with questions (2026-07-28, multi round-trip requests): asked, and answered before.

    `requests` are the questions by their names, `answers` what earlier rounds brought, `state` what the function
    wants to find again.
    """

    requests: dict[str, Any]
    answers: dict[str, Any]
    state: dict[str, Any]
    is_error: bool = False
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """The result as the hub keeps it; the client sees answers and state sealed only."""
        return {"inputRequests": self.requests, "answers": self.answers, "state": self.state}


Result = ToolResult | ResourceResult | PromptResult | InputRequired


class ToolError(Exception):
    """Raised by a tool to fail with a text that the model may read and act on."""


class ProtocolError(Exception):
    """Raised by a function to answer with a JSON-RPC error, which clients handle and models do not see.

    `code` is outside of the range that JSON-RPC keeps to itself (-32768 to -32000), or one of its own codes. Raises
    ValueError for any other, which would mean something else to the client.
    """

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: Any = None) -> None:
        if code in RESERVED and code not in JSON_RPC:
            raise ValueError(f"{code} is not an error code to choose: take one outside of -32768 to -32000.")
        super().__init__(message)
        self.code = code
        self.data = data


class ResourceNotFound(Exception):
    """Raised by the function of a resource template whose values name nothing."""


class CallCancelled(Exception):
    """Raised inside a tool when its call was cancelled."""


def failed(message: str, cause: str = "") -> ToolResult:
    """A tool error whose text a model can act on."""
    return ToolResult(content=[text(message)], is_error=True, cause=cause)


def text(value: str) -> Block:
    """A text content block."""
    return {"type": "text", "text": value}


def image(data: bytes, mime_type: str) -> Block:
    """An image content block."""
    return {"type": "image", "data": _base64(data), "mimeType": mime_type}


def audio(data: bytes, mime_type: str) -> Block:
    """An audio content block."""
    return {"type": "audio", "data": _base64(data), "mimeType": mime_type}


def embedded(uri: str, *, text: str | None = None, blob: bytes | None = None, mime_type: str | None = None) -> Block:
    """A content block that holds a resource: its `text`, or its `blob`."""
    return {"type": "resource", "resource": contents(uri, blob if text is None else text, mime_type)}


def link(uri: str, name: str, **more: Any) -> Block:
    """A content block that refers to a resource; `more` are fields of a resource, such as `mimeType`."""
    return {"type": "resource_link", "uri": uri, "name": name, **more}


def user(content: Block | str) -> dict[str, Any]:
    """A prompt message of the user."""
    return {"role": "user", "content": _block(content)}


def assistant(content: Block | str) -> dict[str, Any]:
    """A prompt message of the assistant."""
    return {"role": "assistant", "content": _block(content)}


def contents(uri: str, value: str | bytes | None, mime_type: str | None = None) -> dict[str, Any]:
    """The contents of one resource: text as text, bytes in Base64."""
    body: dict[str, Any] = {"uri": uri}
    if mime_type:
        body["mimeType"] = mime_type
    return body | ({"text": value} if isinstance(value, str) else {"blob": _base64(value or b"")})


def without(result: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """`result` without these fields."""
    return {name: value for name, value in result.items() if name not in names}


def _block(content: Block | str) -> Block:
    return text(content) if isinstance(content, str) else content


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
