"""Keeping secrets out of texts that are written for people: log lines, tracebacks, findings.

Three nets, one behind the other: values that are known to be secret, those of the running call's arguments among
them; texts that look like credentials; and whatever follows a name that says it is secret.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

from tools_app.telemetry import about

HIDDEN = "[redacted]"
# Shorter ones are words or numbers: hiding them would hide half the log.
SHORTEST = 6
MOST_CHARACTERS = 65_536
DEEPEST = 32

_NAME = (
    r"(?:passw(?:or)?d|pwd|passphrase|secret|credential|authorization|api[_-]?key|private[_-]?key|access[_-]?key"
    r"|token(?![a-z])|cookie)[\w-]{0,40}"
)
_QUOTE = r"\\{0,4}[\"']"
_VALUE = (
    # However often a quotation mark inside is escaped, it is not the end.
    rf"(?!{re.escape(HIDDEN)})"
    r"(?:b?\"(?:[^\"\\]|\\+.)*\"|b?'(?:[^'\\]|\\+.)*'"
    r"|(?P<quote>\\{1,4}[\"']).*?(?<!\\)(?P=quote)"
    # A text that was cut off: there is no end.
    r"|b?\\{0,4}[\"'].*"
    rf"|(?:{re.escape(HIDDEN)}|[^\s,;&}}\)\]\"'\\])+)"
)
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # The hub's own keys, and people's tokens: what the admin shows of one stays.
    (re.compile(r"\b(mcphubt?_[\w-]{5})[\w-]{20,}"), rf"\1{HIDDEN}"),
    # The link of an invitation.
    (re.compile(r"(/invitations/)[\w-]{20,}"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # scheme://user:password@host
    (re.compile(r"(\w://[^/\s:@\"']{0,200}):[^\s/\"']{1,500}@"), rf"\1:{HIDDEN}@"),
    # A header's whole value
    (re.compile(r"\b((?:authorization|(?:set-)?cookie)\s*[:=]\s*)[^\r\n\"'\\]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    # name=value, "name": "value", ("name", "value")
    (
        re.compile(rf"({_NAME}(?:{_QUOTE})?(?:\s*[:=]\s*|\s*,\s*(?=b?[\"']))){_VALUE}", re.IGNORECASE | re.DOTALL),
        rf"\1{HIDDEN}",
    ),
)


class _Known:
    """What this process was told to hide. Filled once, when it starts."""

    def __init__(self) -> None:
        self.values: set[str] = set()
        self.is_secret: Callable[[str], bool] = lambda _name: False


_known = _Known()


def hide(*values: str) -> None:
    """Never let these values through: the process's own secrets."""
    for value in values:
        _known.values.update(_spellings(value))


def hide_password_of(*urls: str) -> None:
    """Never let the passwords in these addresses through; one text may hold several, as brokers' do."""
    for url in ";".join(urls).split(";"):
        user_and_password = url.partition("://")[2].rpartition("@")[0]
        password = user_and_password.partition(":")[2]
        hide(password, unquote(password))


def hide_arguments(is_secret: Callable[[str], bool]) -> None:
    """Hide the values of a call's arguments whose names `is_secret` tells."""
    _known.is_secret = is_secret


def scrubbed(text: str) -> str:
    """`text` without secrets, and not endlessly long."""
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]} … ({len(text)} characters)"
    for value in sorted(_known.values | _in_arguments(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def _in_arguments() -> set[str]:
    arguments = about.arguments()
    return {spelling for value in _secrets_in(arguments) for spelling in _spellings(value)} if arguments else set()


def _secrets_in(value: Any, depth: int = 0) -> Iterator[str]:
    """The texts below secret names."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _texts_in(item) if _known.is_secret(str(name)) else _secrets_in(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets_in(item, depth + 1)


def _texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > DEEPEST:
        return
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(item, depth + 1)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _spellings(value: str) -> Iterable[str]:
    """A value as it stands in a text, in JSON, in a Python literal and in a URL."""
    if len(value) < SHORTEST:
        return ()
    return {value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value), quote(value, safe="")}
