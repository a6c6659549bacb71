"""Fast counting of a byte in a long text."""

from typing import Final

# Shorter texts are counted directly by `bytes.count`.
LONG: Final = 4096
# Up to this number, occurrences are found one by one, which skips the bytes between them much faster than counting.
FEW: Final = 256


def occurrences(text: bytes | bytearray, byte: bytes) -> int:
    """Count a byte in a text: fast for a text of LONG bytes or more that is mostly one string."""
    at = -1
    for found in range(FEW):
        at = text.find(byte, at + 1)
        if at < 0:
            return found
    return FEW + text.count(byte, at + 1)
