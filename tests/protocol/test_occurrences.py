"""Counting a byte: the same result as `bytes.count`, for rare and frequent bytes."""

import pytest

from tools_app.protocol.occurrences import FEW, LONG, occurrences


@pytest.mark.parametrize("every", [1, 2, 7, 100, LONG, 10 * LONG])
@pytest.mark.parametrize("length", [0, 1, LONG - 1, LONG, LONG + 1, 3 * LONG, FEW * 100])
def test_the_number_is_the_same(length: int, every: int) -> None:
    text = b"".join(b"{" if number % every == 0 else b"x" for number in range(length))
    assert occurrences(text, b"{") == text.count(b"{")
    assert occurrences(text, b"[") == 0


class Counted(bytes):
    """Bytes that record how much of them was counted."""

    counted = 0

    def count(self, byte: object, start: object = 0, end: object = None) -> int:
        assert isinstance(byte, bytes)
        assert isinstance(start, int)
        Counted.counted += len(self) - start
        return bytes(self[start:]).count(byte)


def test_a_long_string_is_passed_over() -> None:
    text = Counted(b'{"message": "' + b"x" * 1_000_000 + b'"}')
    assert occurrences(text, b"{") == 1
    assert Counted.counted == 0
