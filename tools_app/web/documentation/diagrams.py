"""Sequence diagrams in the notation of Mermaid, as nested lists of steps.

A list is readable without a script, in every size, and by a screen reader. It covers what the documentation uses:
participants, messages, and the blocks `opt`, `loop` and `alt`.
"""

import re
from collections.abc import Iterator
from html import escape
from typing import Final

_PARTICIPANT = re.compile(r"participant (?P<id>\w+)(?: as (?P<name>\S.*))?")
_MESSAGE = re.compile(r"(?P<sender>\w+)(?P<arrow>--?>>)(?P<receiver>\w+): (?P<text>\S.*)")
_BLOCK = re.compile(r"(?P<kind>opt|loop|alt|else) (?P<condition>\S.*)")
_LABELS: Final = {"opt": "If", "loop": "Repeated:", "alt": "Case:", "else": "Case:"}
# How a line changes the depth of the lines after it.
_DEPTH: Final = {"opt": 1, "loop": 1, "alt": 1, "end": -1}
_FIRST_LINE: Final = "sequenceDiagram"


class DiagramError(ValueError):
    """The text is no sequence diagram that can be shown as a list."""


def steps(source: str) -> str:
    """Return a sequence diagram as an ordered list in HTML. Raises DiagramError."""
    first, *lines = [line.strip() for line in source.splitlines() if line.strip()] or [""]
    if first != _FIRST_LINE:
        raise DiagramError(first)
    names: dict[str, str] = {}
    depth = 0
    parts = ["<ol>"]
    for line in lines:
        if found := _PARTICIPANT.fullmatch(line):
            names[found["id"]] = found["name"] or found["id"]
            continue
        word = line.split()[0]
        if word in {"else", "end"} and not depth:
            raise DiagramError(line)
        depth += _DEPTH.get(word, 0)
        parts += _line(line, names)
    if depth:
        raise DiagramError("end")
    return "".join([*parts, "</ol>"])


def _line(line: str, names: dict[str, str]) -> Iterator[str]:
    if message := _MESSAGE.fullmatch(line):
        yield f"<li>{_message(message, names)}</li>"
    elif block := _BLOCK.fullmatch(line):
        if block["kind"] == "else":
            yield "</ol></li>"
        yield f"<li>{_LABELS[block['kind']]} {escape(block['condition'])}<ol>"
    elif line == "end":
        yield "</ol></li>"
    else:
        raise DiagramError(line)


def _message(message: re.Match[str], names: dict[str, str]) -> str:
    sender, receiver = (escape(names.get(message[end], message[end])) for end in ("sender", "receiver"))
    between = f"<strong>{sender}</strong>"
    if receiver != sender:
        between += f" → <strong>{receiver}</strong>"
    return f"{between}: {escape(message['text'])}"
