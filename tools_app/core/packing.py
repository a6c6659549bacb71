"""Compressed storage of two texts: the arguments and result of a call where they are large.

A packed pair is one byte for the format, four for the length of the first text, and both texts in UTF-8, deflated
together. Unpacked data never exceeds MAX_BYTES, even if the database was modified.
"""

import zlib
from typing import Final

FORMAT: Final = b"\x01"
# On JSON of 20 KB, level 4 and above take longer and save only a few percent.
LEVEL: Final = 3
# Far above practical values of MCPHUB_MAX_PAYLOAD_BYTES. A larger pair is not packed.
MAX_BYTES: Final = 16 * 1024 * 1024

# What is unpacked to show the beginning of both texts.
MAX_BEGINNING_BYTES: Final = 128 * 1024

_LENGTH: Final = 4
_HEAD: Final = len(FORMAT) + _LENGTH


class UnpackError(ValueError):
    """The bytes are not an output of `pack`."""


def pack(first: str, second: str) -> bytes | None:
    """Compress both texts into one byte string. Return None if together they are too long."""
    head, tail = first.encode(), second.encode()
    if len(head) + len(tail) > MAX_BYTES:
        return None
    return FORMAT + len(head).to_bytes(_LENGTH, "big") + zlib.compress(head + tail, LEVEL)


def texts(first: str, second: str, packed: bytes | memoryview | None) -> tuple[str, str]:
    """Return the two texts, stored as plain text or packed. Raises UnpackError."""
    return (first, second) if packed is None else unpack(bytes(packed))


def unpack(packed: bytes) -> tuple[str, str]:
    """Return the texts that were passed to `pack`. Raises UnpackError for anything else."""
    if packed[: len(FORMAT)] != FORMAT:
        raise UnpackError("the format is unknown")
    length = int.from_bytes(packed[len(FORMAT) : _HEAD], "big")
    both = _inflated(packed[_HEAD:])
    try:
        return both[:length].decode(), both[length:].decode()
    except UnicodeDecodeError as problem:
        raise UnpackError("these are no texts") from problem


def unpack_beginnings(start: bytes, most: int) -> tuple[str, str]:
    """Return at most `most` characters of each text, from the first bytes of a packed pair. Texts may be missing."""
    if start[: len(FORMAT)] != FORMAT:
        return "", ""
    length = int.from_bytes(start[len(FORMAT) : _HEAD], "big")
    try:
        both = zlib.decompressobj().decompress(start[_HEAD:], MAX_BEGINNING_BYTES)
    except zlib.error:
        return "", ""
    first, second = both[:length], both[length:]
    return first.decode(errors="ignore")[:most], second.decode(errors="ignore")[:most]


def _inflated(deflated: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        both = stream.decompress(deflated, MAX_BYTES + 1)
    except zlib.error as problem:
        raise UnpackError("these bytes were never deflated") from problem
    if not stream.eof or stream.unused_data or len(both) > MAX_BYTES:
        raise UnpackError("the texts are cut off, or too long")
    return both
