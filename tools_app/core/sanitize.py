"""Sanitizing of clients' values for database columns: truncated, and without NUL, which PostgreSQL rejects."""

from typing import Any

_NUL, _INSTEAD = "\x00", "�"


def is_storable(text: str) -> bool:
    """Return whether columns accept a text unchanged: it has no NUL and no lone surrogate."""
    return _NUL not in text and text.encode(errors="ignore").decode() == text


def for_column(text: str, longest: int) -> str:
    """Return `text` truncated to `longest` characters, with NUL replaced."""
    return text[:longest].replace(_NUL, _INSTEAD)


def sanitized(text: str) -> str:
    """Replace what no column accepts: NUL, and lone surrogates, which undecodable file names contain."""
    return text.encode(errors="backslashreplace").decode().replace(_NUL, _INSTEAD)


def sanitized_json(value: Any) -> Any:
    """Sanitize every string in a decoded JSON value, including names."""
    if isinstance(value, dict):
        return {sanitized_json(name): sanitized_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [sanitized_json(item) for item in value]
    return value.replace(_NUL, _INSTEAD) if isinstance(value, str) else value


def has_nul(value: Any, encoded: bytes) -> bool:
    """Return whether a string of a JSON value, or a name, has a NUL. `encoded` is the value as JSON.

    Only the value shows whether the six characters are an escape: in a pattern, a backslash may stand before them.
    """
    return b"\\u0000" in encoded and sanitized_json(value) != value
