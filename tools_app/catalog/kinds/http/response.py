"""Conversion of an HTTP response into a tool's result (tools, §Tool Result). No I/O.

Secrets are redacted before a text is truncated or parsed, so that no part of one remains.
"""

import codecs
import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from tools_app.catalog.tool_api.results import (
    ResourceNotFound,
    ResourceResult,
    ToolError,
    ToolResult,
    contents,
    failed,
    text,
)
from tools_app.core.http.client import Reply
from tools_app.core.http.redirects import REDIRECTS
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.protocol import exact_json

EXCERPT_CHARACTERS = 2000
SUCCESSES = range(200, 300)
NOTHING_THERE = (404, 410)

_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+")
_TEXTUAL = re.compile(
    r"text/.*|application/(json|xml|javascript|ecmascript|yaml|x-yaml|toml|graphql|x-www-form-urlencoded|x-ndjson)"
    r"|.*\+(json|xml|yaml)"
)
_JSON = re.compile(r"(application|text)/json|.*\+json")
# Python's names of the accepted encodings; others are not text encodings, or slow on hostile input.
_CHARSETS = {"utf-8", "utf-16", "utf-16-le", "utf-16-be", "ascii", "gbk", "gb2312", "gb18030", "big5"}
_CHARSETS |= {"euc_jp", "euc_kr", "shift_jis", "koi8-r", "koi8-u"}
_CHARSETS |= {f"iso8859-{part}" for part in range(1, 17)} | {f"cp125{page}" for page in range(9)}


@dataclass(frozen=True)
class _ContentType:
    essence: str
    charset: str


@dataclass(frozen=True)
class _Parsed:
    """A JSON value that a result can contain, and its text."""

    value: Any
    text: str


def to_result(reply: Reply, output_schema: Mapping[str, Any] | None, scrubber: Scrubber) -> ToolResult:
    """Convert `reply` into a result: its content, or a tool error for an unsuccessful status."""
    if reply.status not in SUCCESSES:
        return _refused(reply, scrubber)
    if not reply.body:
        return ToolResult([text(f"(empty response, HTTP {reply.status})")])
    kind = _content_type(reply)
    parsed = _parsed(reply, kind, scrubber)
    if parsed is not None:
        structured = None
        if output_schema is not None and isinstance(parsed.value, dict):
            structured = parsed.value
        elif output_schema is not None and "result" in output_schema.get("properties", {}):
            # Structured content is an object.
            structured = {"result": parsed.value}
        return ToolResult([text(parsed.text)], structured=structured)
    return ToolResult([_block(reply, kind, scrubber)])


def to_contents(reply: Reply, uri: str, mime_type: str, scrubber: Scrubber) -> ResourceResult:
    """Convert `reply` into the contents of a resource; `mime_type` overrides that of the response.

    Raises ResourceNotFound if the service has no such resource, and ToolError for any other unsuccessful status.
    """
    if reply.status in NOTHING_THERE:
        raise ResourceNotFound
    if reply.status not in SUCCESSES:
        raise ToolError(_refused(reply, scrubber).content[0]["text"])
    kind = _content_type(reply)
    content_type = mime_type or scrubber.text(kind.essence) or None
    if not _is_text(reply, kind):
        return ResourceResult([contents(uri, scrubber.data(reply.body), content_type)])
    parsed = _parsed(reply, kind, scrubber)
    return ResourceResult([contents(uri, parsed.text if parsed else _readable(reply, kind, scrubber), content_type)])


def _refused(reply: Reply, scrubber: Scrubber) -> ToolResult:
    kind = _content_type(reply)
    if reply.status in REDIRECTS:
        excerpt = "a redirect, and this tool does not follow redirects."
    elif not reply.body:
        excerpt = "(empty response)"
    elif not _is_text(reply, kind):
        excerpt = _described(reply, kind, scrubber)
    else:
        parsed = _parsed(reply, kind, scrubber)
        whole = parsed.text if parsed else _readable(reply, kind, scrubber)
        excerpt = whole if len(whole) <= EXCERPT_CHARACTERS else f"{whole[:EXCERPT_CHARACTERS]}…"
    return failed(f"HTTP {reply.status} from the service: {excerpt}")


def readable_body(reply: Reply, scrubber: Scrubber, most: int) -> str:
    """Return the body for a person to read, at most `most` characters: JSON indented, binary data described."""
    kind = _content_type(reply)
    if not reply.body:
        return ""
    if not _is_text(reply, kind):
        return _described(reply, kind, scrubber)
    parsed = _parsed(reply, kind, scrubber)
    if parsed is None or len(parsed.text) > most:
        whole = parsed.text if parsed else _readable(reply, kind, scrubber)
    else:
        whole = exact_json.dumps(parsed.value, option=orjson.OPT_INDENT_2).decode()
    return whole if len(whole) <= most else f"{whole[:most]}…"


def _content_type(reply: Reply) -> _ContentType:
    essence, _, parameters = reply.headers.get("content-type", "").lower().partition(";")
    declared = re.search(r"charset\s*=\s*\"?([a-z0-9_-]+)", parameters)
    essence = essence.strip()
    charset = "utf-8"
    if declared:
        with suppress(LookupError):
            charset = codecs.lookup(declared[1]).name
    charset = charset if charset in _CHARSETS else "utf-8"
    return _ContentType(essence if _MEDIA_TYPE.fullmatch(essence) else "", charset)


def _is_text(reply: Reply, kind: _ContentType) -> bool:
    if kind.essence:
        return _TEXTUAL.fullmatch(kind.essence) is not None
    return b"\x00" not in reply.body


def _decoded(reply: Reply, kind: _ContentType) -> str:
    return reply.body.decode(kind.charset, "replace").removeprefix("\ufeff")


def _readable(reply: Reply, kind: _ContentType, scrubber: Scrubber) -> str:
    return scrubber.text(_decoded(reply, kind))


def _parsed(reply: Reply, kind: _ContentType, scrubber: Scrubber) -> _Parsed | None:
    """Return the JSON of a response; None if it has none, or if it cannot be passed on.

    It is serialized again, because escapes in the original could hide a secret.
    """
    if not _JSON.fullmatch(kind.essence):
        return None
    try:
        value = scrubber.value(exact_json.loads(_decoded(reply, kind)))
        return _Parsed(value, exact_json.dumps(value).decode())
    except (ValueError, TypeError, RecursionError):
        return None


def _block(reply: Reply, kind: _ContentType, scrubber: Scrubber) -> dict[str, Any]:
    """Return a content block for a body that is not JSON."""
    if _is_text(reply, kind):
        return text(_readable(reply, kind, scrubber))
    family = kind.essence.partition("/")[0]
    if family in {"image", "audio"}:
        data = b64encode(scrubber.data(reply.body)).decode()
        return {"type": family, "data": data, "mimeType": scrubber.text(kind.essence)}
    return text(
        f"The service answered with {_described(reply, kind, scrubber)}, which is not a supported content type."
    )


def _described(reply: Reply, kind: _ContentType, scrubber: Scrubber) -> str:
    return f"{len(reply.body)} bytes of {scrubber.text(kind.essence) or 'an unknown type'}"
