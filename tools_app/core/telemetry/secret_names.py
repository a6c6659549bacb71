"""Secret values in texts and results: finding and redacting them, in any encoding in which they may appear.

URLs, forms, JSON, HTML, base64 and hex are covered; in URLs, JSON and HTML whichever characters are escaped.
"""

import base64
import html
import json
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus

import orjson

# Shorter values, encoded as base64 or hex, are too likely to occur in other text.
MIN_ENCODED: Final = 6
# Beyond this total length, values are only searched for unencoded.
MAX_SPELLED_CHARACTERS: Final = 64 * 1024
# Hexadecimal digits of an escape may be upper or lower case.
_HEX: Final = re.compile(r"(?:%|\\u|&#x)[0-9A-Fa-f]{2}")
_NAMED: Final = dict(
    zip(b"b f n r t amp lt gt quot apos".split(), b"\b \f \n \r \t & < > \" '".split(b" "), strict=True)
)
# What JSON escapes.
_IN_JSON: Final = re.compile(rb"[\x00-\x1f\"\\]")
_IN_NUMBERS: Final = re.compile(rb"[-+.0-9eE]+")


@lru_cache(maxsize=64)
def _escape_pattern(letters: bytes) -> re.Pattern[bytes]:
    r"""Return a pattern of an escaped character of JSON or Python, also in JSON within JSON, of HTML, and of a URL.

    `letters` are those of short escapes, such as `n` for `\n`. The pattern begins with a set, which is searched for
    quickly, and each run of backslashes is looked at once.
    """
    return re.compile(
        rb"[\\&%](?:"
        rb"(?<=\\)(?<!\\\\)\\*+(?:u(?P<pair>[dD][89abAB][0-9A-Fa-f]{2}\\++u[dD][c-fC-F][0-9A-Fa-f]{2})"
        rb"|u(?P<unit>[0-9A-Fa-f]{4})|x(?P<byte>[0-9A-Fa-f]{2})"
        + (rb"|(?P<short>[%b])" % letters if letters else b"")
        + rb")|(?<=&)(?:#0*+(?P<decimal>[1-9][0-9]{0,6})|#[xX]0*+(?P<hex>[0-9A-Fa-f]{1,6})"
        rb"|(?P<name>amp|lt|gt|quot|apos));"
        rb"|(?<=%)(?:25)*(?P<octet>[0-9A-Fa-f]{2}))"
    )


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
        self._search_for(
            [_bytes(one) for one in spellings if not _HEX.search(one)],
            [_bytes(one).lower() for one in spellings if _HEX.search(one)],
        )

    def _search_for(self, exact: list[bytes], in_any_case: list[bytes]) -> None:
        self._exact, self._in_any_case = exact, in_any_case
        # Other escapes than those of these bytes are left as they are.
        self._bytes = frozenset(b"".join((*exact, *in_any_case)))
        letters = bytes(letter for letter in b"\"'/bfnrt" if self._bytes.issuperset(_named(bytes([letter]))))
        self._escape = _escape_pattern(letters)
        # A text of fewer characters contains none, and a number only what is written like one.
        self.shortest = min((len(_text(one)) for one in (*exact, *in_any_case)), default=0)
        self.is_in_numbers = any(map(_IN_NUMBERS.fullmatch, exact))

    def text(self, text: str, replacement: str) -> str:
        """Replace each value in `text` with `replacement`; overlapping values are replaced together."""
        data = _bytes(text)
        hidden = self.data(data, replacement.encode())
        return text if hidden is data else _text(hidden)

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

    def occurring_in(self, written: bytes) -> "ValueFinder | None":
        """Return a finder of those spellings that may occur in the texts and numbers of a JSON text; None without any.

        To find what it finds in each of them is quick, even if there are many.
        """
        unescaped = _Unescaped(written, self._escape, self._bytes).text
        exact = [one for one in self._exact if _in_json(one) in written or one in unescaped]
        in_any_case: list[bytes] = []
        if self._in_any_case:
            written, unescaped = written.lower(), unescaped.lower()
            in_any_case = [one for one in self._in_any_case if _in_json(one) in written or one in unescaped]
        if not (exact or in_any_case):
            return None
        narrowed = ValueFinder(())
        narrowed._search_for(exact, in_any_case)
        return narrowed

    def _places(self, data: bytes) -> Iterator[tuple[int, int]]:
        yield from self._spelled(data)
        unescaped = _Unescaped(data, self._escape, self._bytes)
        if unescaped.text is not data:
            for start, stop in self._spelled(unescaped.text):
                yield unescaped.place(start, stop)

    def _spelled(self, data: bytes) -> Iterator[tuple[int, int]]:
        for spelling in self._exact:
            yield from _occurrences(spelling, data)
        if self._in_any_case:
            lower = data.lower()
            for spelling in self._in_any_case:
                yield from _occurrences(spelling, lower)


class _Unescaped:
    """A text in which escapes of characters of these bytes are replaced by the characters themselves, in UTF-8."""

    def __init__(self, data: bytes, pattern: re.Pattern[bytes], kept: frozenset[int]) -> None:
        self.text = data
        # Where each one begins in the text, how many bytes it has, and which bytes of the data it stands for.
        self._begins: list[int] = []
        self._spans: list[tuple[int, int, int]] = []
        if not (b"\\" in data or b"&" in data or b"%" in data):
            return
        pieces, end, length = [], 0, 0
        for escape in pattern.finditer(data):
            character = _character(escape)
            if not kept.issuperset(character):
                continue
            pieces += [data[end : escape.start()], character]
            length += escape.start() - end
            self._begins.append(length)
            self._spans.append((len(character), *escape.span()))
            length += len(character)
            end = escape.end()
        if pieces:
            self.text = b"".join([*pieces, data[end:]])

    def place(self, start: int, stop: int) -> tuple[int, int]:
        """Return where a part of the text stands in the data."""
        return self._span(start)[0], self._span(stop - 1)[1]

    def _span(self, position: int) -> tuple[int, int]:
        index = bisect_right(self._begins, position) - 1
        if index < 0:
            return position, position + 1
        length, start, end = self._spans[index]
        offset = position - self._begins[index]
        return (start, end) if offset < length else (end + offset - length, end + offset - length + 1)


def _character(escape: re.Match[bytes]) -> bytes:
    """Return the character that an escape stands for, in UTF-8; of a URL one byte of it."""
    kind, written = escape.lastgroup, escape[escape.lastgroup or 0]
    if kind == "octet":
        return bytes.fromhex(written.decode())
    if kind == "pair":
        return (bytes.fromhex(written[:4].decode()) + bytes.fromhex(written[-4:].decode())).decode("utf-16-be").encode()
    if kind in {"short", "name"}:
        return _named(written)
    code = int(written, 10 if kind == "decimal" else 16)
    return chr(code).encode(errors="surrogatepass") if code <= sys.maxunicode else b"\xff"


def _named(name: bytes) -> bytes:
    """Return the character that a letter after a backslash, or a name in HTML, stands for."""
    return _NAMED.get(name, name)


def _occurrences(spelling: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    start = data.find(spelling)
    while start >= 0:
        end = start + len(spelling)
        yield start, end
        start = data.find(spelling, end)


def _in_json(spelling: bytes) -> bytes:
    return _bytes(json.dumps(_text(spelling), ensure_ascii=False)[1:-1]) if _IN_JSON.search(spelling) else spelling


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _text(data: bytes) -> str:
    return data.decode(errors="surrogatepass")


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

    def beginning(self, text: str, most: int) -> str:
        """Return at most `most` characters of `text` without secrets: none is cut, which would leave a part of it."""
        shown = self.text(text[: most + MAX_SPELLED_CHARACTERS])
        # The end of what was searched may be the beginning of a secret.
        is_cut = len(text) > most + MAX_SPELLED_CHARACTERS
        return shown[: max(0, min(most, len(shown) - MAX_SPELLED_CHARACTERS) if is_cut else most)]

    def data(self, data: bytes) -> bytes:
        """Return `data` without secrets."""
        return self._finder.data(data, REPLACEMENT.encode())

    def finds(self, text: str | bytes) -> bool:
        """Whether `text` contains a secret."""
        return self._finder.finds(text)

    def value(self, value: Any) -> Any:
        """Redact a JSON value, in keys, strings and numbers. Raises RecursionError if it is nested too deeply.

        It is searched as one text, and only taken apart if that contains a secret.
        """
        try:
            written = orjson.dumps(value)
        except TypeError:
            # A long number, half of a surrogate pair, or many levels.
            written = _bytes(json.dumps(value, ensure_ascii=False, default=str))
        finder = self._finder.occurring_in(written)
        return value if finder is None else _redacted(value, finder)


def _redacted(value: Any, finder: ValueFinder) -> Any:
    match value:
        case str():
            return value if len(value) < finder.shortest else finder.text(value, REPLACEMENT)
        case dict():
            return {_redacted(key, finder): _redacted(item, finder) for key, item in value.items()}
        case list():
            return [_redacted(item, finder) for item in value]
        case int() | float() | Decimal() if finder.is_in_numbers and finder.finds(str(value)):
            return REPLACEMENT
        case _:
            return value
