"""Two texts in few bytes: how arguments and result of a call are kept where they are large.

A packed pair is one byte that names the format, four that say how long the first text is, and both texts in UTF-8,
deflated as one. Nothing that is read back grows beyond MOST_BYTES, whatever stands in the database.
"""

import zlib
from typing import Final

FORMAT: Final = b"\x01"
# On JSON of 20 KB the levels from 4 on take longer and save no more than a few percent.
LEVEL: Final = 3
# Far above what MCPHUB_PAYLOAD_BYTES lets through in practice. A pair above it is not packed.
MOST_BYTES: Final = 16 * 1024 * 1024

_LENGTH: Final = 4
_HEAD: Final = len(FORMAT) + _LENGTH


class NotPacked(ValueError):
    """Bytes that `pack` did not make."""


def pack(first: str, second: str) -> bytes | None:
    """Both texts as one short byte string; None if together they are too long to be packed."""
    head, tail = first.encode(), second.encode()
    if len(head) + len(tail) > MOST_BYTES:
        return None
    return FORMAT + len(head).to_bytes(_LENGTH, "big") + zlib.compress(head + tail, LEVEL)


def texts(first: str, second: str, packed: bytes | memoryview | None) -> tuple[str, str]:
    """The two texts, however they are stored: as they are, or packed. Raises NotPacked."""
    return (first, second) if packed is None else unpack(bytes(packed))


def unpack(packed: bytes) -> tuple[str, str]:
    """The texts that `pack` was given. Raises NotPacked for anything else."""
    if packed[: len(FORMAT)] != FORMAT:
        raise NotPacked("the format is unknown")
    length = int.from_bytes(packed[len(FORMAT) : _HEAD], "big")
    both = _inflated(packed[_HEAD:])
    try:
        return both[:length].decode(), both[length:].decode()
    except UnicodeDecodeError as problem:
        raise NotPacked("these are no texts") from problem


def _inflated(deflated: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        both = stream.decompress(deflated, MOST_BYTES + 1)
    except zlib.error as problem:
        raise NotPacked("these bytes were never deflated") from problem
    if not stream.eof or stream.unused_data or len(both) > MOST_BYTES:
        raise NotPacked("the texts are cut off, or too long")
    return both
