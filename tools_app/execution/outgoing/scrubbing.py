"""Keeping secrets out of whatever comes back: results, error texts and causes."""

import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

REPLACEMENT = "[redacted]"


class Scrubber:
    """Replaces the values of secrets, also in the spellings that URLs, JSON and HTML give them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = {spelling for secret in secrets if secret for spelling in _spellings(secret)}
        longest_first = sorted(spellings, key=len, reverse=True)
        self._text = re.compile("|".join(map(re.escape, longest_first))) if spellings else None
        self._data = re.compile(self._text.pattern.encode()) if self._text else None

    def text(self, text: str) -> str:
        """`text` without secrets."""
        return self._text.sub(REPLACEMENT, text) if self._text else text

    def data(self, data: bytes) -> bytes:
        """`data` without secrets."""
        return self._data.sub(REPLACEMENT.encode(), data) if self._data else data

    def finds(self, text: str | bytes) -> bool:
        """Whether a secret stands in `text`."""
        if isinstance(text, bytes):
            return self._data is not None and self._data.search(text) is not None
        return self._text is not None and self._text.search(text) is not None

    def value(self, value: Any) -> Any:
        """A JSON value without secrets, in keys, texts and numbers. Raises RecursionError if it is nested too deep."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(key): self.value(item) for key, item in value.items()}
            case list():
                return [self.value(item) for item in value]
            case int() | float() if self.finds(str(value)):
                return REPLACEMENT
            case _:
                return value


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret)
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield html.escape(secret)
    for ascii_only in (False, True):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield escaped.replace("/", r"\/")
