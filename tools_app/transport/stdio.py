"""The stdio transport: one JSON-RPC message per line, for clients that start a process (stdio, §Sending Messages)."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from queue import SimpleQueue

from tools_app.core.config import config
from tools_app.core.process.threads import start_thread
from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.transport import state
from tools_app.transport.connection import Connection
from tools_app.transport.incoming import Authenticate, Incoming
from tools_app.transport.send_queue import Write

ADDRESS = "stdio"
CHUNK_BYTES = 65536
# The maximum number of chunks that are read ahead.
MAX_CHUNKS = 16


async def serve(authenticate: Authenticate, source: int, sink: int) -> None:
    """Answer messages from `source` on `sink` until end of file. Only messages are written to `sink`.

    Both are file descriptors. Each gets a daemon thread, which may block forever without delaying process exit.
    """
    writer = _Writer(sink)
    await Connection(authenticate, ADDRESS, state.current(), writer.write).serve(
        _messages(source, writer.write), finish=True
    )


async def _messages(source: int, refuse: Write) -> AsyncIterator[Incoming]:
    """Yield the non-empty lines of `source`. A line that is too long is rejected."""
    most = config.MCPHUB_MAX_BODY_BYTES
    lines = Lines(most)
    async for chunk in _Reader(source).chunks():
        for line in lines.of(chunk):
            if line is not None:
                yield Incoming(line)
                continue
            error = RpcError(INVALID_REQUEST, f"The message is larger than {most} bytes.")
            await refuse(jsonrpc.error_message(None, error))


class Lines:
    """Assembles lines from chunks. A line longer than `most` bytes is discarded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line = bytearray()
        self._too_long = False

    def of(self, chunk: bytes) -> Iterator[bytes | None]:
        """Yield the non-empty lines that end in `chunk`, with None for a line that was too long.

        An empty chunk means end of file, which also ends the last line.
        """
        *ends, rest = chunk.split(b"\n") if chunk else (b"", b"")
        for end in ends:
            self._add(end)
            line, too_long = bytes(self._line).strip(), self._too_long
            self._line, self._too_long = bytearray(), False
            if line or too_long:
                yield None if too_long else line
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        if self._too_long or len(self._line) + len(piece) > self._most:
            self._line, self._too_long = bytearray(), True
        else:
            self._line += piece


class _Reader:
    """A thread that reads up to MAX_CHUNKS ahead."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_CHUNKS)
        start_thread("stdin", self._read)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks read; the last one is empty."""
        chunk = b"first"
        while chunk:
            chunk = await self._chunks.get()
            self._room.release()
            yield chunk

    def _read(self) -> None:
        chunk = b"first"
        while chunk:
            self._room.acquire()
            try:
                chunk = os.read(self._source, CHUNK_BYTES)
            except OSError:
                chunk = b""
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed: there is no reader


class _Writer:
    """A thread that writes one message at a time."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._lines: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        start_thread("stdout", self._write)

    async def write(self, message: bytes) -> None:
        """Write a message. Raises OSError if the reader is gone."""
        written = self._loop.create_future()
        self._lines.put((message + b"\n", written))
        await written

    def _write(self) -> None:
        while True:
            line, written = self._lines.get()
            problem = None
            try:
                while line:
                    line = line[os.write(self._sink, line) :]
            except OSError as error:
                problem = error
            try:
                self._loop.call_soon_threadsafe(_settle, written, problem)
            except RuntimeError:
                return  # the loop is closed: there is no waiter


def _settle(written: "asyncio.Future[None]", problem: OSError | None) -> None:
    if written.done():
        return
    if problem is None:
        written.set_result(None)
    else:
        written.set_exception(problem)
