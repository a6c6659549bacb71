"""URI templates (RFC 6570), the subset for resources: `{name}` for one path segment, `{+name}` for several."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final
from urllib.parse import unquote

EXPRESSION = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")
MAX_URI = 8192
MAX_TEMPLATE_LENGTH: Final = 500
MAX_VARIABLES: Final = 16
# Path separators, also on systems where a value may be used as a file path.
SEPARATORS = re.compile(r"[/\\]")

# Bytes that a value of `{name}`, and of `{+name}`, must not contain.
_OUTSIDE_SEGMENT: Final = b"/?#"
_OUTSIDE_PATH: Final = b"\n"
_CONTINUATION: Final = bytes(range(0x80, 0xC0))


class BadTemplate(ValueError):
    """The template is invalid: an unsupported expression, a repeated name, a control character, or its size."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable, the bytes that its values must not contain, and the literal text after it."""

    name: str
    excluded: bytes
    literal: bytes


@dataclass(frozen=True)
class UriTemplate:
    """A template ready to match URIs. `variables` are in order; those in `rooted` may be absolute paths."""

    template: str
    variables: tuple[str, ...]
    rooted: frozenset[str]
    _prefix: bytes
    _parts: tuple[Variable, ...]

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables, percent-decoded, or None if `uri` does not match.

        Where several values are possible, each variable takes as much as possible, the first one first. The time is
        linear in the length of the URI for every template. No value may escape from the template's path (resources,
        §Security Considerations).
        """
        found = self._values(uri) if len(uri) <= MAX_URI else None
        if found is None:
            return None
        values = {name: unquote(value) for name, value in found}
        if any(_leaves(value, rooted=name in self.rooted) for name, value in values.items()):
            return None
        return values

    def _values(self, uri: str) -> list[tuple[str, str]] | None:
        text = uri.encode(errors="surrogatepass")
        if not self._parts:
            return [] if text == self._prefix else None
        if not text.startswith(self._prefix) or not text.endswith(self._parts[-1].literal):
            return None
        bits = _bits(text)
        ends = self._possible_ends(bits)
        return None if ends is None else list(self._assigned(bits, ends))

    def _possible_ends(self, bits: "_Bits") -> list[int] | None:
        """Return, for each variable, the possible ends at which the rest matches; None if the whole does not match.

        A set of positions is one integer: bit n stands for the position before the last n bytes of the text. Read from
        the end, a byte of a literal shifts all positions by one bit; a variable spreads them over the bytes that it may
        contain.
        """
        places, ends = 1, []
        for part in reversed(self._parts):
            for byte in reversed(part.literal):
                places = (places & bits.holding(bytes((byte,)))) << 1
            places &= bits.boundaries
            if not places:
                return None
            ends.append(places)
            places = _spread(places, bits.without(part.excluded)) & bits.boundaries
        ends.reverse()
        return ends if places >> (len(bits.text) - len(self._prefix)) & 1 else None

    def _assigned(self, bits: "_Bits", possible: list[int]) -> Iterator[tuple[str, str]]:
        """Return the longest value of each variable in order, restricted to the `possible` ends."""
        text = bits.text
        left = len(text) - len(self._prefix)
        for part, ends in zip(self._parts, possible, strict=True):
            barrier = (bits.holding(part.excluded) & ((1 << left) - 1)).bit_length()
            reachable = ends >> barrier
            end = barrier + (reachable & -reachable).bit_length() - 1
            yield part.name, text[len(text) - left : len(text) - end].decode(errors="surrogatepass")
            left = end - len(part.literal)


class _Bits:
    """Sets of the bytes of one text, each as an integer: bit n stands for the byte that n others follow."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._known: dict[bytes, int] = {}
        # Positions at which no character is split.
        self.boundaries = (self.without(_CONTINUATION) << 1) | 1

    def holding(self, wanted: bytes) -> int:
        """Return the positions of these bytes in the text."""
        if wanted not in self._known:
            self._known[wanted] = int(b"0" + self.text.translate(_binary_digits(wanted)), 2)
        return self._known[wanted]

    def without(self, excluded: bytes) -> int:
        """Return the positions of all other bytes in the text."""
        return self.holding(excluded) ^ ((1 << len(self.text)) - 1)


@lru_cache(maxsize=4)
def _bits(text: bytes) -> _Bits:
    """Return the sets of a text, cached for the next template: a URI is compared with all templates of a tenant."""
    return _Bits(text)


@cache
def _binary_digits(wanted: bytes) -> bytes:
    """Return a table for `bytes.translate`: "1" for each of these bytes, "0" for all others."""
    return bytes(b"01"[byte in wanted] for byte in range(256))


def _spread(places: int, allowed: int) -> int:
    """Return the positions from which one or more `allowed` bytes lead to one of `places`.

    A bit added to a run of ones carries to the end of the run and turns the bits that it passes into zeros.
    """
    first = places & allowed
    return ((((allowed + first) ^ allowed) | first) & allowed) << 1


def parse(template: str) -> UriTemplate:
    """Parse a template. Raises BadTemplate."""
    if len(template) > MAX_TEMPLATE_LENGTH:
        raise BadTemplate(f"A URI can have at most {MAX_TEMPLATE_LENGTH} characters.")
    # The text around the variables, then a "+" or nothing and a name for each: text, plus, name, text, ...
    pieces = EXPRESSION.split(template)
    literals, pluses, names = pieces[::3], pieces[1::3], pieces[2::3]
    encoded = [_literal(text) for text in literals]
    repeated = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if repeated is not None:
        raise BadTemplate(f"{{{repeated}}} is used twice.")
    if len(names) > MAX_VARIABLES:
        raise BadTemplate(f"A template can have at most {MAX_VARIABLES} variables, not {len(names)}.")
    return UriTemplate(
        template,
        tuple(names),
        frozenset(
            name for text, plus, name in zip(literals, pluses, names, strict=False) if plus and text.endswith("://")
        ),
        encoded[0],
        tuple(
            Variable(name, _OUTSIDE_PATH if plus else _OUTSIDE_SEGMENT, literal)
            for name, plus, literal in zip(names, pluses, encoded[1:], strict=True)
        ),
    )


def is_template(uri: str) -> bool:
    """Whether a URI is a template."""
    return "{" in uri


def _leaves(value: str, *, rooted: bool) -> bool:
    """Whether a value used as a path would escape: upwards, to the root, or by an invalid file name."""
    parts = SEPARATORS.split(value)
    return "." in parts or ".." in parts or "\x00" in value or (parts[0] == "" and not rooted)


def _literal(text: str) -> bytes:
    if "{" in text or "}" in text:
        raise BadTemplate(
            "A brace is not part of a {variable}. Names of variables consist of letters, digits and underscores."
        )
    if not text.isprintable():
        raise BadTemplate("It contains an invisible character. Percent-encode it.")
    return text.encode(errors="surrogatepass")
