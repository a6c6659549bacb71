"""Clients' values as columns take them: not too long, and without NUL, the one character that PostgreSQL refuses."""

from typing import Any

_NUL, _INSTEAD = "\x00", "�"


def storable(text: str, longest: int) -> str:
    """The beginning of `text` that fits a column of `longest` characters."""
    return text[:longest].replace(_NUL, _INSTEAD)


def sound(text: str) -> str:
    """The text without what no column takes: NUL, and lone surrogates, which undecodable file names have."""
    return text.encode(errors="backslashreplace").decode().replace(_NUL, _INSTEAD)


def storable_json(value: Any) -> Any:
    """A decoded JSON value with the same done to every text in it, names included."""
    if isinstance(value, dict):
        return {storable_json(name): storable_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [storable_json(item) for item in value]
    return value.replace(_NUL, _INSTEAD) if isinstance(value, str) else value
