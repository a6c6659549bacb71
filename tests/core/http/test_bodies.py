import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Iterable

import pytest

from tools_app.core import request_memory
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.http.client import read_body
from tools_app.core.http.errors import RequestFailed
from tools_app.core.request_memory import TooMuchMemory


def read(chunks: Iterable[bytes], encoding: str = "", most: int = 1000) -> bytes:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return asyncio.run(read_body(stream(), encoding, most))


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", b"hello"),
        ("identity", b"hello"),
        ("gzip", gzip.compress(b"hello", mtime=0)),
        (" GZIP ", gzip.compress(b"hello", mtime=0)),
        ("x-gzip", gzip.compress(b"hello", mtime=0)),
        ("deflate", zlib.compress(b"hello")),
    ],
)
def test_a_body_is_unpacked_wherever_it_is_cut(encoding: str, body: bytes) -> None:
    assert read([body[:3], body[3:]], encoding) == b"hello"


def test_a_body_may_fill_its_cap() -> None:
    assert len(read([b"x" * 600, b"x" * 400])) == 1000
    assert len(read([gzip.compress(b"x" * 1000, mtime=0)], "gzip")) == 1000


def test_reading_ends_with_the_chunk_that_goes_over_the_cap() -> None:
    consumed = []

    def chunks() -> Iterable[bytes]:
        for number in range(100):
            consumed.append(number)
            yield b"x" * 400

    with pytest.raises(RequestFailed, match="larger than the 1000 bytes"):
        read(chunks())
    assert consumed == [0, 1, 2]


def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\x00" * 100_000_000, mtime=0)

    with pytest.raises(RequestFailed, match="larger than the"):
        read([bomb], "gzip", most=len(bomb))


def test_what_is_received_counts_too() -> None:
    empty_blocks = zlib.compressobj()
    packed = b"".join(empty_blocks.flush(zlib.Z_FULL_FLUSH) or b"\x00\x00\x00\xff\xff" for _ in range(10))

    with pytest.raises(RequestFailed, match="larger than the"):
        read([packed + b"\x00\x00\x00\xff\xff" * 300], "deflate")


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, gzip", "x"])
def test_an_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    with pytest.raises(RequestFailed, match="not requested"):
        read([b"x"], encoding)


@pytest.mark.parametrize(
    "body",
    [b"not packed", gzip.compress(b"hello", mtime=0)[:-4], gzip.compress(b"hello") + b"more"],
    ids=["raw", "cut", "more"],
)
def test_a_broken_encoding_is_refused(body: bytes) -> None:
    with pytest.raises(RequestFailed, match="invalid content encoding"):
        read([body], "gzip")


def test_an_empty_body_needs_no_unpacking() -> None:
    assert read([], "gzip") == b""


# --- Memory ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The memory reserved for responses, in bytes."""
    sizes: list[int] = []

    async def hold(size: int) -> None:
        if size > 1_000_000:
            raise TooMuchMemory
        sizes.append(size)

    monkeypatch.setattr(request_memory, "hold_result", hold)
    return sizes


@pytest.mark.parametrize(("size", "sizes"), [(LARGE_BYTES, []), (LARGE_BYTES + 1, [1_000_000])])
def test_memory_is_held_once_for_what_a_large_body_may_be(held: list[int], size: int, sizes: list[int]) -> None:
    body = b"x" * size
    assert read([body[:-1], body[-1:]], most=1_000_000) == body
    assert held == sizes
    assert len(read([body, *[b"x"] * 5], most=1_000_000)) == size + 5
    assert held == [*sizes, 1_000_000]


def test_a_large_body_for_which_there_is_no_memory_is_not_read_on(held: list[int]) -> None:
    consumed = []

    def chunks() -> Iterable[bytes]:
        for number in range(10):
            consumed.append(number)
            yield b"x" * LARGE_BYTES

    with pytest.raises(RequestFailed, match="Too many large"):
        read(chunks(), most=1_000_001)
    assert consumed == [0, 1]
