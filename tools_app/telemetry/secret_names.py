"""Secret values in texts and results: finding and redacting them, in any encoding in which they may appear.

URLs, forms, JSON, HTML, base64 and hex are covered.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

# Shorter values, encoded as base64 or hex, are too likely to occur in other text.
MIN_ENCODED: Final = 6
# Beyond this total length, values are only searched for unencoded.
MAX_SPELLED_CHARACTERS: Final = 64 * 1024
# Hexadecimal digits of an escape may be upper or lower case.
_HEX: Final = re.compile(r"(?:%|\\u|&#x)[0-9A-Fa-f]{2}")


class ValueFinder:
    """Finds `values` in texts, in any of their encodings.

    Texts are searched for one encoding after the other, in linear time. A regular expression of all of them takes
    seconds to compile if a client sends many long values.
    """

    def __init__(self, values: Iterable[str]) -> None:
        spellings: set[str] = set()
        left = MAX_SPELLED_CHARACTERS
        for value in filter(None, values):
            left -= len(value)
            spellings.update(_spellings(value) if left >= 0 else (value,))
        self._exact = [_bytes(one) for one in spellings if not _HEX.search(one)]
        self._in_any_case = [_bytes(one).lower() for one in spellings if _HEX.search(one)]

    def text(self, text: str, replacement: str) -> str:
        """Replace each value in `text` with `replacement`; overlapping values are replaced together."""
        data = _bytes(text)
        hidden = self.data(data, replacement.encode())
        return text if hidden is data else hidden.decode(errors="surrogatepass")

    def data(self, data: bytes, replacement: bytes) -> bytes:
        """Replace each value in bytes."""
        pieces, end = [], 0
        for start, stop in sorted(self._places(data)):
            if start >= end:
                pieces += [data[end:start], replacement]
            end = max(end, stop)
        return b"".join([*pieces, data[end:]]) if pieces else data

    def finds(self, data: str | bytes) -> bool:
        """Whether one of the values occurs."""
        return next(self._places(_bytes(data) if isinstance(data, str) else data), None) is not None

    def _places(self, data: bytes) -> Iterator[tuple[int, int]]:
        for spellings, searched in ((self._exact, data), (self._in_any_case, data.lower())):
            for spelling in spellings:
                start = searched.find(spelling)
                while start >= 0:
                    end = start + len(spelling)
                    yield start, end
                    start = searched.find(spelling, end)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _spellings(value: str) -> Iterator[str]:
    yield value
    for safe in ("/", "", "/:=&?@+,;$!*'()"):
        once = quote(value, safe=safe, errors="replace")
        yield once
        yield quote(once, safe="")
    yield quote_plus(value, errors="replace")
    escaped = html.escape(value)
    yield escaped
    for apostrophe in ("&#39;", "&apos;", "'"):
        yield escaped.replace("&#x27;", apostrophe)
    yield repr(value)[1:-1]
    for ascii_only in (False, True):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield once.replace("/", r"\/")
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    raw = value.encode(errors="replace")
    if len(raw) >= MIN_ENCODED:
        yield raw.hex()
        yield raw.hex().upper()
        yield from _base64(raw)


def _base64(raw: bytes) -> Iterator[str]:
    """Return the part of a base64 text that does not depend on the bytes around the value, such as `user:password`."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        # The first characters depend on the bytes before, the last one on the bytes after.
        inner = encoded[(0, 2, 3)[before] : len(encoded) - bool((before + len(raw)) % 3)]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
        yield quote(inner, safe="")


REPLACEMENT = "[redacted]"


class Scrubber:
    """Redacts secret values, also as encoded in URLs, forms, JSON, HTML, base64 and hex."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._finder = ValueFinder(secrets)

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        return self._finder.text(text, REPLACEMENT)

    def data(self, data: bytes) -> bytes:
        """Return `data` without secrets."""
        return self._finder.data(data, REPLACEMENT.encode())

    def finds(self, text: str | bytes) -> bool:
        """Whether `text` contains a secret."""
        return self._finder.finds(text)

    def value(self, value: Any) -> Any:
        """Redact a JSON value, in keys, strings and numbers. Raises RecursionError if it is nested too deeply."""
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
