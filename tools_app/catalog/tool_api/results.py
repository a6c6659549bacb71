"""Results of tools, resources and prompts, and the errors that they raise."""

import base64
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.protocol.errors import INTERNAL_ERROR, JSON_RPC, PAGES_REQUIRED, RESERVED

Block = dict[str, Any]
# For estimates of sizes.
TEXTS: Final = (str, bytes, bytearray, memoryview)
LISTS: Final = (list, tuple, set, frozenset, deque)
NUMBERS: Final = {int, float, bool, type(None)}
NUMBER_BYTES: Final = 4


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool (tools, §Tool Result): content blocks as JSON objects, and optional structured content.

    `cause` is the internal error for the audit log; it never leaves the hub.
    """

    content: list[Block]
    structured: Any = None
    is_error: bool = False
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the result in its wire format."""
        body: dict[str, Any] = {"content": self.content}
        if self.structured is not None:
            body["structuredContent"] = self.structured
        body["isError"] = self.is_error
        return body


class ResourceResult(msgspec.Struct, frozen=True):
    """The result of `resources/read` (resources, §Resource Contents): objects with `uri` and `text` or `blob`."""

    contents: list[dict[str, Any]]
    is_error: bool = False
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the result in its wire format."""
        return {"contents": self.contents}


class PromptResult(msgspec.Struct, frozen=True):
    """The result of `prompts/get` (prompts, §PromptMessage): messages with the role `user` or `assistant`."""

    messages: list[dict[str, Any]]
    description: str = ""
    is_error: bool = False
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the result in its wire format."""
        described = {"description": self.description} if self.description else {}
        return {**described, "messages": self.messages}


class InputRequired(msgspec.Struct, frozen=True):
    """A run that ended with questions (2026-07-28, multi round-trip requests), and the answers so far.

    `requests` are the questions by name, `answers` those of earlier rounds, `state` what the function receives in the
    next round, and `refused` the number of invalid answers to a question.
    """

    requests: dict[str, Any]
    answers: dict[str, Any]
    state: dict[str, Any]
    refused: dict[str, int] = {}
    is_error: bool = False
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the result as the hub stores it; the client sees `requests` in clear and the rest encrypted."""
        return {
            "inputRequests": self.requests,
            "answers": self.answers,
            "state": self.state,
            "refused": self.refused,
        }


Result = ToolResult | ResourceResult | PromptResult | InputRequired


def size_of(value: Any) -> int:
    """Estimate the bytes of a value as JSON, or return that they are more than LARGE_BYTES.

    It looks at no more parts of the value than that. One function, because it is on the path of every call.
    """
    size = 0
    waiting: list[Collection[Any]] = [(value,)]
    while waiting and size <= LARGE_BYTES:
        for part in waiting.pop():
            kind = type(part)
            if kind is str:
                size += len(part)
            elif kind in NUMBERS:
                size += NUMBER_BYTES
            elif isinstance(part, dict):
                size += 2 * len(part)
                if size <= LARGE_BYTES:
                    waiting += [part, part.values()]
            elif isinstance(part, LISTS):
                size += 2 + len(part)
                waiting.append(part)
            elif isinstance(part, TEXTS):
                size += len(part)
            else:
                # An object, such as a result, or a model of a tool: by its attributes.
                size += 2
                names = (*getattr(kind, "__struct_fields__", ()), *getattr(kind, "__slots__", ()))
                waiting.append([getattr(part, "__dict__", None), *[getattr(part, name, None) for name in names]])
            if size > LARGE_BYTES:
                break
    return size


class ToolError(Exception):
    """Raised by a tool to fail with a text that the model may read and act on."""


class ProtocolError(Exception):
    """Raised by a function to return a JSON-RPC error, which clients handle and models do not see.

    `code` must be outside the range that JSON-RPC reserves (-32768 to -32000), or one of the codes defined there.
    Raises ValueError for any other, which would have another meaning to the client.
    """

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: Any = None) -> None:
        if code in RESERVED and code not in JSON_RPC:
            raise ValueError(f"{code} is a reserved error code. Use one outside of -32768 to -32000.")
        super().__init__(message)
        self.code = code
        self.data = data


class PagesRequired(ProtocolError):
    """A request cannot run before somebody has visited pages. `pages` are URL elicitations with their ids.

    For clients of 2025-11-25 that declare URL elicitation; no function of a tenant raises it.
    """

    def __init__(self, message: str, pages: list[dict[str, Any]]) -> None:
        super().__init__(message, data={"elicitations": pages})
        self.code = PAGES_REQUIRED


class ResourceNotFound(Exception):
    """Raised by the function of a resource template if its values match no resource."""


class CallLost(Exception):
    """The process that held a running call was lost: its outcome is unknown. `cause` is for the audit log."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class CallCancelled(Exception):
    """Raised inside a tool when its call was cancelled."""


def failed(message: str, cause: str = "") -> ToolResult:
    """Return a tool error with a text that a model can act on."""
    return ToolResult(content=[text(message)], is_error=True, cause=cause)


def text(value: str) -> Block:
    """Return a text content block."""
    return {"type": "text", "text": value}


def image(data: bytes, mime_type: str) -> Block:
    """Return an image content block."""
    return {"type": "image", "data": _base64(data), "mimeType": mime_type}


def audio(data: bytes, mime_type: str) -> Block:
    """Return an audio content block."""
    return {"type": "audio", "data": _base64(data), "mimeType": mime_type}


def embedded(uri: str, *, text: str | None = None, blob: bytes | None = None, mime_type: str | None = None) -> Block:
    """Return a content block with an embedded resource: its `text` or its `blob`."""
    return {"type": "resource", "resource": contents(uri, blob if text is None else text, mime_type)}


def link(uri: str, name: str, **more: Any) -> Block:
    """Return a resource link; `more` are fields of a resource, such as `mimeType`."""
    return {"type": "resource_link", "uri": uri, "name": name, **more}


def user(content: Block | str) -> dict[str, Any]:
    """Return a prompt message with the role `user`."""
    return {"role": "user", "content": _block(content)}


def assistant(content: Block | str) -> dict[str, Any]:
    """Return a prompt message with the role `assistant`."""
    return {"role": "assistant", "content": _block(content)}


def contents(uri: str, value: str | bytes | None, mime_type: str | None = None) -> dict[str, Any]:
    """Return the contents of one resource: strings as text, bytes in Base64."""
    body: dict[str, Any] = {"uri": uri}
    if mime_type:
        body["mimeType"] = mime_type
    return body | ({"text": value} if isinstance(value, str) else {"blob": _base64(value or b"")})


def without(result: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return `result` without these fields."""
    return {name: value for name, value in result.items() if name not in names}


def _block(content: Block | str) -> Block:
    return text(content) if isinstance(content, str) else content


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
