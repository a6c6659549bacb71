"""Reading an answer's body under a cap that holds for what is received and for what it unpacks to."""

import zlib
from collections.abc import AsyncIterable, Callable

from tools_app.execution.outgoing.failures import RequestFailed

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


async def read_body(chunks: AsyncIterable[bytes], encoding: str, most: int) -> bytes:
    """The decoded body. Raises RequestFailed as soon as more than `most` bytes have come, packed or unpacked."""
    unpack = _unpacker(encoding)
    received = 0
    body = bytearray()
    async for chunk in chunks:
        received += len(chunk)
        body += unpack.feed(chunk, most - len(body) + 1)
        if received > most or len(body) > most:
            raise too_large(most)
    if received:
        unpack.finish()
    return bytes(body)


def too_large(most: int) -> RequestFailed:
    """The failure of an answer over its cap."""
    return RequestFailed(f"the service answered with more than the {most} bytes that this tool accepts")


class _Plain:
    def feed(self, chunk: bytes, _most: int) -> bytes:
        return chunk

    def finish(self) -> None:
        """Nothing is pending."""


class _Inflating:
    """gzip or deflate, never unpacking more than is asked for, so that a bomb stays packed."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, chunk: bytes, most: int) -> bytes:
        try:
            piece = self._stream.decompress(chunk, most)
        except zlib.error as problem:
            raise _broken(str(problem)) from problem
        if self._stream.unused_data:
            raise _broken("bytes after the end of the compressed data")
        return piece

    def finish(self) -> None:
        if not self._stream.eof:
            raise _broken("the compressed data ends too early")


_UNPACKERS: dict[str, Callable[[], _Plain | _Inflating]] = {
    "": _Plain,
    "identity": _Plain,
    "gzip": _Inflating,
    "x-gzip": _Inflating,
    "deflate": _Inflating,
}


def _unpacker(encoding: str) -> _Plain | _Inflating:
    make = _UNPACKERS.get(encoding.strip().lower())
    if make is None:
        raise RequestFailed("the service answered in a content encoding that nobody asked for", encoding)
    return make()


def _broken(cause: str) -> RequestFailed:
    return RequestFailed("the service answered with a broken content encoding", cause)
