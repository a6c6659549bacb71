"""Signs of instructions to models in the definitions of upstreams (tool poisoning).

A warning is a hint for the admin who reviews a definition: nothing is refused because of it, and its absence proves
nothing.
"""

import unicodedata
from collections.abc import Iterator
from typing import Any, Final

MAX_TEXTS: Final = 2000
MAX_TEXT_LENGTH: Final = 20_000

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
    """Return what is suspicious in the texts of a definition, each warning once."""
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
