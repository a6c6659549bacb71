"""Content, contents of resources, annotations and icons in the form that every client accepts.

Upstreams and functions return members that are null or of another type, and content of types that the specification
does not know. Clients refuse a whole result or list for one of them. So optional members that are not valid are left
out, and content that is not valid becomes a text that says so.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from tools_app.protocol import exact_json

# Characters of a text that repeats invalid content.
MAX_REPEATED: Final = 10_000
ROLES: Final = ("user", "assistant")
HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_BASE64: Final = bytes.maketrans(b"-_", b"+/")

# What a valid value becomes; None for one that is not valid, whose member is left out.
Clean = Callable[[Any], Any]
Members = Mapping[str, Clean]


class InvalidContent(ValueError):
    """A result that cannot be made valid. The message says why."""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _priority(value: Any) -> float | None:
    number = exact_json.number(value)
    return number if number is not None and 0 <= number <= 1 else None


def _audience(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and all(role in ROLES for role in value) else None


def _texts(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(entry, str) for entry in value) else None


def _theme(value: Any) -> str | None:
    return value if value in ("light", "dark") else None


def _uri(value: Any) -> str | None:
    return value if isinstance(value, str) and _URI.fullmatch(value) else None


def _meta(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def moment(value: Any) -> str | None:
    """Return a time with its offset from UTC (RFC 3339), which is the only form that all clients read."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        return None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return None
    return value


def base64_text(value: Any) -> str | None:
    """Return Base64 with the standard alphabet and padding, also for the URL-safe alphabet and for broken lines."""
    if not isinstance(value, str) or not value.isascii():
        return None
    raw = value.encode()
    rest = raw.translate(None, _BASE64)
    if len(raw) % 4 == 0 and rest in (b"", b"=", b"==") and raw.endswith(rest):
        return value
    raw = raw.translate(_TO_BASE64, b" \t\r\n").rstrip(b"=")
    if raw.translate(None, _BASE64) or len(raw) % 4 == 1:
        return None
    return (raw + b"=" * (-len(raw) % 4)).decode()


def _object_of(members: Members) -> Clean:
    return lambda value: cleaned(value, members) if isinstance(value, dict) else None


def cleaned(value: Mapping[str, Any], members: Members) -> dict[str, Any]:
    """Return an object whose members are valid; those that the specification does not know stay as they are."""
    result = {}
    for name, member in value.items():
        clean = members.get(name)
        valid = member if clean is None else clean(member)
        if valid is not None or clean is None:
            result[name] = valid
    return result


_ICON: Final[Members] = {"src": _uri, "mimeType": _text, "sizes": _texts, "theme": _theme}
_ANNOTATIONS: Final[Members] = {"audience": _audience, "priority": _priority, "lastModified": moment}
_HINTS: Final[Members] = {"title": _text, **dict.fromkeys(HINTS, _flag)}
annotations: Final = _object_of(_ANNOTATIONS)
hints: Final = _object_of(_HINTS)


def icons(value: Any) -> list[dict[str, Any]] | None:
    """Return the icons that have a source."""
    if not isinstance(value, list):
        return None
    found = [cleaned(icon, _ICON) for icon in value if isinstance(icon, dict)]
    return [icon for icon in found if "src" in icon]


_COMMON: Final[Members] = {"annotations": annotations, "_meta": _meta}
_CONTENTS: Final[Members] = {"uri": _uri, "text": _text, "blob": base64_text, "mimeType": _text, "_meta": _meta}


def _embedded(value: Any) -> dict[str, Any] | None:
    contents = cleaned(value, _CONTENTS) if isinstance(value, dict) else {}
    return contents if "uri" in contents and ("text" in contents or "blob" in contents) else None


# The members that a block of each type must have, and those that it may have.
_BLOCKS: Final[Mapping[str, tuple[Members, Members]]] = {
    "text": ({"text": _text}, {}),
    "image": ({"data": base64_text, "mimeType": _text}, {}),
    "audio": ({"data": base64_text, "mimeType": _text}, {}),
    "resource": ({"resource": _embedded}, {}),
    "resource_link": (
        {"uri": _uri, "name": _text},
        {"title": _text, "description": _text, "mimeType": _text, "size": _size, "icons": icons},
    ),
}


def valid_content(content: list[Any]) -> list[dict[str, Any]]:
    """Return content whose blocks are valid. Raises TypeError for a block that is not JSON."""
    return [_block(block) for block in content]


def _block(block: Any) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    required, optional = _BLOCKS.get(kind, ({}, {})) if isinstance(kind, str) else ({}, {})
    if required:
        valid = cleaned(block, {**required, **optional, **_COMMON})
        if required.keys() <= valid.keys():
            return valid
    what = f"content of the type {kind[:100]!r}" if isinstance(kind, str) else "content without a type"
    repeated = exact_json.dumps(block)[:MAX_REPEATED].decode(errors="ignore")
    return {"type": "text", "text": f"({what}, which is not valid in this protocol) {repeated}"}


def _content(value: Any) -> list[dict[str, Any]] | None:
    if value is None:
        return []
    return valid_content(value) if isinstance(value, list) else None


_SAMPLED: Final = {
    **{kind: _BLOCKS[kind] for kind in ("text", "image", "audio")},
    "tool_use": ({"id": _text, "name": _text, "input": _meta}, {}),
    "tool_result": ({"toolUseId": _text, "content": _content}, {"isError": _flag}),
}


def valid_sampling(messages: list[Any]) -> list[dict[str, Any]]:
    """Return the messages of a sampling request. Raises InvalidContent for one that no client accepts."""
    valid = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise InvalidContent(f"A message has the role {str(role)[:100]!r}, which is neither user nor assistant.")
        blocks = [_sampled(block) for block in (content if isinstance(content, list) else [content])]
        valid.append({**message, "content": blocks if isinstance(content, list) else blocks[0]})
    return valid


def _sampled(block: Any) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    required, optional = _SAMPLED.get(kind, ({}, {})) if isinstance(kind, str) else ({}, {})
    valid = cleaned(block, {**required, **optional, **_COMMON}) if required else {}
    if not valid or not required.keys() <= valid.keys():
        raise InvalidContent(f"A message has content of the type {str(kind)[:100]!r} that is not valid.")
    return valid


def valid_contents(contents: list[Any], uri: str) -> list[dict[str, Any]]:
    """Return the contents of the resource `uri`: one without a valid URI gets this one, one with nothing is empty."""
    valid = [cleaned(entry, _CONTENTS) for entry in contents if isinstance(entry, dict)]
    return [
        {"uri": uri, **entry} if "text" in entry or "blob" in entry else {"uri": uri, **entry, "text": ""}
        for entry in valid
    ]


def valid_messages(messages: list[Any]) -> list[dict[str, Any]]:
    """Return the messages of a prompt, each with one block. Raises InvalidContent for one without a role or content."""
    valid = []
    for message in messages:
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in ROLES:
            raise InvalidContent(f"a message has the role {str(role)[:100]!r}, which is neither user nor assistant")
        if not isinstance(content, dict | list | str):
            raise InvalidContent("a message has no content")
        blocks = content if isinstance(content, list) else [content]
        # Sampling has such forms of content.
        blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        valid += [{**message, "content": block} for block in valid_content(blocks)]
    return valid
