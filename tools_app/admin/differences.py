"""What differs between two JSON values, as lines for people to read.

Values are laid out as indented JSON with sorted keys, so that the order of keys is no difference; texts of several
lines are laid out line by line. Knows nothing of what the values are, and of HTML only that somebody escapes it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, Literal

# How many unchanged lines are shown around each change.
CONTEXT: Final = 3
# Comparing takes the square of this in the worst case. What is longer is shown as taken out and put in as a whole.
MOST_COMPARED: Final = 2_000
MOST_SHOWN: Final = 1_000
LONGEST_LINE: Final = 4_000

Kind = Literal["same", "added", "removed", "gap"]


@dataclass(frozen=True)
class DiffLine:
    """A line of a diff. A `gap` stands for lines that are left out, and its text says how many."""

    kind: Kind
    text: str


def lines(before: Any, after: Any) -> list[DiffLine]:
    """The lines that lead from one JSON value to another, with their surroundings; none if both say the same."""
    old, new = laid_out(before), laid_out(after)
    if old == new:
        return []
    shown = [DiffLine(line.kind, _cut(line.text)) for line in _compared(old, new)]
    if len(shown) <= MOST_SHOWN:
        return shown
    return [*shown[:MOST_SHOWN], DiffLine("gap", f"{len(shown) - MOST_SHOWN} more lines are not shown")]


def laid_out(value: Any) -> list[str]:
    """A JSON value as lines."""
    return list(_lines("", value, ""))


def _lines(start: str, value: Any, indent: str) -> Iterator[str]:
    """The lines of `value`, the first of which begins with `start`, such as the name of its key."""
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
    """A value on one line. Half of a surrogate pair, which no page can show, is written as its escape."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode(errors="backslashreplace").decode()


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} … ({len(line)} characters)"


def _compared(old: list[str], new: list[str]) -> Iterator[DiffLine]:
    if len(old) > MOST_COMPARED or len(new) > MOST_COMPARED:
        yield from _kind("removed", old)
        yield from _kind("added", new)
        return
    end = 0
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        yield from _gap(group[0][1] - end)
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                yield from _kind("same", old[old_from:old_to])
            else:
                yield from _kind("removed", old[old_from:old_to])
                yield from _kind("added", new[new_from:new_to])
        end = group[-1][2]
    yield from _gap(len(old) - end)


def _kind(kind: Kind, texts: list[str]) -> Iterator[DiffLine]:
    return (DiffLine(kind, text) for text in texts)


def _gap(count: int) -> Iterator[DiffLine]:
    if count:
        yield DiffLine("gap", f"{count} unchanged line{'s' if count > 1 else ''}")
