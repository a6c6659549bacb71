"""Docstrings as tool authors write them: what a function is for, and what each parameter means."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass

# The headings of the Google style; each opens a section that ends at the next unindented line.
_HEADING = re.compile(r"(Args|Arguments|Parameters|Returns?|Yields?|Raises):\s*\Z")
_PARAMETER_HEADINGS = {"Args", "Arguments", "Parameters"}
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)")
_REST_ENTRY = re.compile(r":param\s+(?:\S+\s+)?(?P<name>\w+):\s*(?P<text>.*)")
_REST_FIELD = re.compile(r":\w+[^:]*:")


@dataclass(frozen=True)
class Docstring:
    """The description for the model, and the description of each parameter by name."""

    description: str
    parameters: Mapping[str, str]


def parse(source: str | None) -> Docstring:
    """Read a docstring in Google style (`Args:`) or reST (`:param x:`).

    Sections on parameters, results and exceptions are left out of the description: the schemas say it better.
    """
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for heading, block in _blocks(inspect.cleandoc(source or "").splitlines()):
        if heading in _PARAMETER_HEADINGS:
            parameters |= _google_entries(block)
        elif heading == "field":
            parameters |= _rest_entry(block)
        elif heading == "prose":
            prose += block
    return Docstring(_squeezed(prose), parameters)


def _blocks(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Cut `lines` where an unindented line opens a section, a reST field, or prose again."""
    blocks: list[tuple[str, list[str]]] = [("prose", [])]
    for line in lines:
        if line and not line[0].isspace():
            if opened := _HEADING.match(line):
                blocks.append((opened[1], []))
                continue
            blocks.append(("field" if _REST_FIELD.match(line) else "prose", []))
        blocks[-1][1].append(line)
    return blocks


def _google_entries(block: list[str]) -> dict[str, str]:
    """`name (type): text` lines; deeper lines continue the entry above them."""
    lines = inspect.cleandoc("\n" + "\n".join(block)).splitlines()
    entries: dict[str, str] = {}
    name = ""
    for line in lines:
        opened = None if line[:1].isspace() else _GOOGLE_ENTRY.match(line)
        if opened:
            name = opened["name"]
            entries[name] = opened["text"].strip()
        elif name and line.strip():
            entries[name] = f"{entries[name]} {line.strip()}".strip()
    return entries


def _rest_entry(block: list[str]) -> dict[str, str]:
    """`:param type name: text`, continued on the indented lines below it."""
    opened = _REST_ENTRY.match(" ".join(line.strip() for line in block if line.strip()))
    return {opened["name"]: opened["text"].strip()} if opened else {}


def _squeezed(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
