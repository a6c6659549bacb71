"""Line diffs of two JSON values.

Values are formatted as indented JSON with sorted keys, so key order makes no difference; multi-line strings are
compared line by line. The result is not HTML-escaped.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, Literal

# Number of unchanged lines shown around each change.
CONTEXT: Final = 3
# The comparison is quadratic in this in the worst case. Longer values are shown as removed and added in full.
MAX_COMPARED: Final = 2_000
MAX_SHOWN: Final = 1_000
MAX_LINE: Final = 4_000

Kind = Literal["same", "added", "removed", "gap"]


@dataclass(frozen=True)
class DiffLine:
    """A line of a diff. A `gap` stands for omitted lines; its text gives their number."""

    kind: Kind
    text: str


def lines(before: Any, after: Any) -> list[DiffLine]:
    """Return the changed lines between two JSON values, with context; an empty list if they are equal."""
    old, new = formatted_lines(before), formatted_lines(after)
    if old == new:
        return []
    shown = [
        DiffLine(kind, text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]} … ({len(text)} characters)")
        for kind, text in _compared(old, new)
    ]
    if len(shown) <= MAX_SHOWN:
        return shown
    return [*shown[:MAX_SHOWN], DiffLine("gap", f"{len(shown) - MAX_SHOWN} more lines not shown")]


def formatted_lines(value: Any) -> list[str]:
    """Return a JSON value as formatted lines."""
    return list(_lines("", value, ""))


def _lines(start: str, value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of `value`. The first begins with `start`, such as the key."""
    if isinstance(value, dict) and value:
        yield f"{indent}{start}{{"
        for name in sorted(value, key=str):
            yield from _lines(f"{_scalar(str(name))}: ", value[name], f"{indent}  ")
        yield f"{indent}}}"
    elif isinstance(value, list) and value:
        yield f"{indent}{start}["
        for entry in value:
            yield from _lines("", entry, f"{indent}  ")
        yield f"{indent}]"
    elif isinstance(value, str) and "\n" in value:
        yield f"{indent}{start}|"
        yield from (f"{indent}  {_scalar(line)[1:-1]}" for line in value.split("\n"))
    else:
        yield f"{indent}{start}{_scalar(value)}"


def _scalar(value: Any) -> str:
    """Return a value on one line. Lone surrogates, which cannot be encoded, are written as escapes."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode(errors="backslashreplace").decode()


def _compared(old: list[str], new: list[str]) -> Iterator[tuple[Kind, str]]:
    """Yield the lines of a diff."""
    if len(old) > MAX_COMPARED or len(new) > MAX_COMPARED:
        yield from (("removed", line) for line in old)
        yield from (("added", line) for line in new)
        return
    end = 0
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        yield from _gap(group[0][1] - end)
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                yield from (("same", line) for line in old[old_from:old_to])
            else:
                yield from (("removed", line) for line in old[old_from:old_to])
                yield from (("added", line) for line in new[new_from:new_to])
        end = group[-1][2]
    yield from _gap(len(old) - end)


def _gap(count: int) -> Iterator[tuple[Kind, str]]:
    if count:
        yield "gap", f"{count} unchanged line{'s' if count > 1 else ''}"
