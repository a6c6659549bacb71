"""Redaction of secrets in texts for people: log lines, tracebacks, findings.

Three methods are combined: known secret values, including those in the arguments of the running call; texts that look
like credentials; and values after a name that marks them as secret.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

from tools_app.core.telemetry import log_context
from tools_app.core.telemetry.secret_names import ValueFinder

HIDDEN = "[redacted]"
# Shorter values are ordinary words or numbers: redacting them would redact half the log.
MIN_SECRET = 6
MAX_CHARACTERS = 65_536
MAX_DEPTH = 32
# For the arguments of one call.
MAX_VALUES = 100
MAX_VALUE = 4096

# Between the parts of a name: nothing, a space, or any hyphen-like character.
_GAP = r"[\W_]{0,2}"
_NAME = (
    rf"(?:pass{_GAP}(?:wor)?d|pwd|pass{_GAP}(?:phrase|code)|secret|credential|authorization|signature(?![a-z])"
    rf"|(?:api|private|access|signing|encryption|master|ssh){_GAP}key|(?<![a-z])(?:jwt|t?otp|cvv|cvc|pin)(?![a-z])"
    r"|bearer(?=[\\\"']{0,5}\s{0,5}[:=])|token(?![a-z])|cookie)[\w-]{0,40}"
)
_QUOTE = r"\\{0,4}[\"']"
_VALUE = (
    # An escaped quotation mark, at any level of escaping, does not end the value.
    rf"(?!{re.escape(HIDDEN)})"
    # Possessive: quoted text can be matched in only one way, so matching takes linear time.
    r"(?:b?\"(?:[^\"\\]++|\\++.)*+\"|b?'(?:[^'\\]++|\\++.)*+'"
    r"|(?P<quote>\\{1,4}[\"']).*?(?<!\\)(?P=quote)"
    # A truncated text: there is no closing quotation mark.
    r"|b?\\{0,4}[\"'].*"
    rf"|(?:{re.escape(HIDDEN)}|[^\s,;&}}\)\]\"'\\])+)"
)
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # The hub's API keys and users' tokens: the prefix that the admin shows is kept.
    (re.compile(r"\b(mcphubt?_[\w-]{5})[\w-]{20,}"), rf"\1{HIDDEN}"),
    # An invitation link.
    (re.compile(r"(/invitations/)[\w.-]{20,}"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # scheme://user:password@host, except for this literal example in messages and documentation
    (re.compile(r"(\w://[^/\s:@\"']{0,200}):(?!password@host\b)[^\s/\"']{1,500}@"), rf"\1:{HIDDEN}@"),
    # The whole value of a header
    (re.compile(r"\b((?:authorization|(?:set-)?cookie)\s*[:=]\s*)[^\r\n\"'\\]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    # name=value, "name": "value", ("name", "value")
    (
        re.compile(rf"({_NAME}(?:{_QUOTE})?(?:\s*[:=]\s*|\s*,\s*(?=b?[\"']))){_VALUE}", re.IGNORECASE | re.DOTALL),
        rf"\1{HIDDEN}",
    ),
)


# Characters that are not seen: within a name, they would keep it from being found.
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")


class _Known:
    """The values that this process redacts. Filled once, at startup."""

    def __init__(self) -> None:
        self.values: set[str] = set()  # unencoded; texts may contain them in other encodings
        self.is_secret: Callable[[str], bool] = lambda _name: False


_known = _Known()


def hide(*values: str) -> None:
    """Always redact these values: the process's own secrets."""
    _known.values.update(value for value in values if len(value) >= MIN_SECRET)


def hide_password_of(*urls: str) -> None:
    """Always redact the passwords in these URLs; one text may contain several, such as a list of brokers."""
    for url in ";".join(urls).split(";"):
        user_and_password = url.partition("://")[2].rpartition("@")[0]
        password = user_and_password.partition(":")[2]
        hide(password, unquote(password))


def hide_arguments(is_secret: Callable[[str], bool]) -> None:
    """Redact the values of a call's arguments whose names satisfy `is_secret`."""
    _known.is_secret = is_secret


def scrubbed(text: str) -> str:
    """Return `text` without secrets, truncated to a maximum length."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]} … ({len(text)} characters)"
    if values := frozenset(_known.values | _in_arguments()):
        text = _finder(values).text(text, HIDDEN)
    hidden = _without_credentials(text)
    visible = text if text.isascii() else _INVISIBLE.sub("", text)
    if visible != text:
        visible = _without_credentials(visible)
        # Only if it matters: joined emoji and some scripts need these characters.
        if visible.count(HIDDEN) > hidden.count(HIDDEN):
            return visible
    return hidden


def _without_credentials(text: str) -> str:
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def _in_arguments() -> set[str]:
    arguments = log_context.arguments()
    found = (value for value in _secrets_in(arguments) if MIN_SECRET <= len(value) <= MAX_VALUE) if arguments else ()
    return set(islice(found, MAX_VALUES))


def release_arguments() -> None:
    """Keep only the secrets of the call's arguments in the log context, for code that logs after the call has ended.

    A server's timer holds the context of its connection's last request for as long as the connection is idle.
    """
    log_context.replace_arguments({"password": list(_in_arguments())})


@lru_cache(maxsize=16)
def _finder(values: frozenset[str]) -> ValueFinder:
    return ValueFinder(values)


def _secrets_in(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the strings below secret names."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _texts_in(item) if _known.is_secret(str(name)) else _secrets_in(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets_in(item, depth + 1)


def _texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(item, depth + 1)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
