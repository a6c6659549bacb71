"""A JSON parser that reports the line of each error and locates each value in the source.

Independent of forms.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Never

import orjson

from tools_app.protocol import exact_json

Path = tuple[str | int, ...]

MAX_DEPTH = 64
SPACE = re.compile(r"[ \t\r\n]*")
# PostgreSQL cannot store this character in JSON.
ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
SCALARS = json.JSONDecoder()


class JsonProblem(ValueError):
    """The text is not JSON that can be stored. The message names line and column where known."""


@dataclass(frozen=True)
class JsonSource:
    """A JSON text and its parsed value."""

    text: str
    value: Any

    def line_of(self, path: Path) -> int:
        """Return the line number, from 1, of the value at `path`, or of its nearest parent in the text."""
        while path and path not in self._offsets:
            path = path[:-1]
        return self.text.count("\n", 0, self._offsets[path]) + 1

    @cached_property
    def _offsets(self) -> dict[Path, int]:
        offsets: dict[Path, int] = {}
        _locate(self.text, _skip(self.text, 0), (), offsets)
        return offsets


def parse(text: str) -> JsonSource:
    """Parse `text`. Raises JsonProblem, also for JSON that stores or clients would reject (NaN, duplicate keys)."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise JsonProblem(f"Line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise JsonProblem("Nested too deeply.") from error
    if found := ESCAPED_NUL.search(text):
        raise JsonProblem(f"Line {text.count(chr(10), 0, found.start()) + 1}: the character \\u0000 cannot be stored.")
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if depth > MAX_DEPTH:
        raise JsonProblem(f"Nested too deeply: at most {MAX_DEPTH} levels are allowed.")
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise JsonProblem(f"This cannot be stored: {error}.") from error
    return JsonSource(text, value)


def pretty(value: Any) -> str:
    """Return `value` as indented JSON with non-ASCII characters unescaped."""
    return json.dumps(exact_json.without_decimals(value), indent=2, ensure_ascii=False)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonProblem(f"Duplicate key {twice!r} in one object.")
    return value


def _refuse_constant(name: str) -> Never:
    raise JsonProblem(f"{name} is not JSON.")


def _skip(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _locate(text: str, at: int, path: Path, offsets: dict[Path, int]) -> int:
    """Record the offsets of the value at `at` and of each value in it. Return its end. The text must be valid JSON."""
    offsets.setdefault(path, at)
    opening = text[at]
    if opening not in "{[":
        return SCALARS.raw_decode(text, at)[1]
    at, position = _skip(text, at + 1), 0
    while text[at] not in "}]":
        name: str | int = position
        if opening == "{":
            name, end = SCALARS.raw_decode(text, at)
            offsets[(*path, name)] = at
            at = _skip(text, _skip(text, end) + 1)
        at = _next(text, _locate(text, at, (*path, name), offsets))
        position += 1
    return at + 1


def _next(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at
