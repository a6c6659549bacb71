"""Warnings about the definitions of upstreams: signs of instructions to models (tool poisoning), and what is not used.

A warning is a hint for the admin who reviews a definition: nothing is refused because of it, and its absence proves
nothing.
"""

import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from tools_app.protocol.authoring_schema import dotted
from tools_app.protocol.content import moment
from tools_app.protocol.unchecked_patterns import unchecked_patterns

MAX_TEXTS: Final = 2000
MAX_TEXT_LENGTH: Final = 20_000
MAX_PATTERNS: Final = 10
MAX_SHOWN_PATH: Final = 200

_PHRASES: Final = {
    "asks to ignore other instructions": (
        "ignore previous", "ignore all", "ignore the above", "ignore any", "disregard previous", "disregard all",
        "override the instructions", "forget previous",
    ),
    "asks to hide something from the user": (
        "do not tell the user", "don't tell the user", "do not mention", "don't mention", "without telling",
        "do not inform", "never mention", "do not reveal", "hide this from", "without the user",
    ),
    "addresses the model as a system message": (
        "<important>", "<system", "[system]", "system prompt", "<|im_start|>", "</instructions>", "you are now",
    ),
    "wants to be called before other tools": (
        "before using any other tool", "before any other tool", "before calling any", "must always call this",
        "must be called first", "always use this tool instead", "instead of any other tool",
    ),
    "mentions files with credentials": (
        "id_rsa", ".ssh/", ".aws/credentials", ".env file", "mcp.json", "/etc/passwd", "private key",
    ),
}  # fmt: skip


def warnings_of(definition: Any) -> list[str]:
    """Return what is suspicious in a definition, and what the hub does not use of it, each warning once."""
    return [*_suspicions(definition), *(_unused(definition) if isinstance(definition, dict) else ())]


def _unused(definition: dict[str, Any]) -> Iterator[str]:
    """Yield what the hub leaves out of a valid definition."""
    for member in ("inputSchema", "outputSchema"):
        try:
            paths = unchecked_patterns(definition.get(member))
        except RecursionError:  # it is refused
            continue
        for path in paths[:MAX_PATTERNS]:
            yield (
                f"{member}, {dotted(path)[:MAX_SHOWN_PATH]}: the hub does not check this regular expression, because"
                " look-around and back-references take unbounded time. Clients get it, and the rest is checked."
            )
        if len(paths) > MAX_PATTERNS:
            yield f"{member}: {len(paths) - MAX_PATTERNS} more regular expressions are not checked."
    annotations = definition.get("annotations")
    last_modified = annotations.get("lastModified") if isinstance(annotations, dict) else None
    if last_modified is not None and moment(last_modified) is None:
        yield "Its lastModified is left out: it is no time with an offset, such as 2026-01-31T12:00:00Z."


def _suspicions(definition: Any) -> list[str]:
    warnings: dict[str, None] = {}
    for text in _texts(definition):
        folded = " ".join(text[:MAX_TEXT_LENGTH].casefold().split())
        for warning, phrases in _PHRASES.items():
            phrase = next((candidate for candidate in phrases if candidate in folded), None)
            if phrase is not None:
                warnings[f'{warning}: "{phrase}"'] = None
        if not text.isascii() and any(
            unicodedata.category(character) in {"Cf", "Co"} for character in text[:MAX_TEXT_LENGTH]
        ):
            warnings["contains invisible characters"] = None
    return list(warnings)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a JSON value, keys included, at most MAX_TEXTS."""
    pending, remaining = [value], MAX_TEXTS
    while pending and remaining:
        item = pending.pop()
        if isinstance(item, str):
            remaining -= 1
            yield item
        elif isinstance(item, dict):
            pending += [*item.values(), *item.keys()]
        elif isinstance(item, list):
            pending += item
