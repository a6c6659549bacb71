"""Standard streams: one JSON-RPC message a line, for clients that only start processes (stdio, §Sending Messages)."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from queue import SimpleQueue

from tools_app.models.config import config
from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.transport import state
from tools_app.transport.connection import Authenticate, Connection, Write

ADDRESS = "stdio"
CHUNK_BYTES = 65536
# So much is read ahead of what was taken.
MOST_CHUNKS = 16


async def serve(authenticate: Authenticate, source: int, sink: int) -> None:
    """Answer the messages of the file `source` on `sink` until it ends. Nothing but messages is ever written there.

    Both are file descriptors, and each gets a thread that may hang for ever: no process has to wait for it.
    """
    writer = _Writer(sink)
    await Connection(authenticate, ADDRESS, state.current(), writer.write).serve(
        _messages(source, writer.write), finish=True
    )


async def _messages(source: int, refuse: Write) -> AsyncIterator[bytes]:
    """The lines of `source` without empty ones. One that is too long is refused."""
    most = config.MCPHUB_MAX_BODY_BYTES
    lines = Lines(most)
    async for chunk in _Reader(source).chunks():
        for line in lines.of(chunk):
            if line is not None:
                yield line
                continue
            error = RpcError(INVALID_REQUEST, f"The message is larger than {most} bytes.")
            await refuse(jsonrpc.error_message(None, error))


class Lines:
    """Puts lines together from pieces. Of a line that is longer than `most` bytes nothing is kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = bytearray()
        self._too_long = False

    def of(self, chunk: bytes) -> Iterator[bytes | None]:
        """The lines that end in `chunk`, without empty ones; None stands for one that was too long.

        An empty chunk is the end, which ends the last line too.
        """
        *ends, rest = chunk.split(b"\n") if chunk else (b"", b"")
        for end in ends:
            self._add(end)
            line, too_long = bytes(self._begun).strip(), self._too_long
            self._begun, self._too_long = bytearray(), False
            if line or too_long:
                yield None if too_long else line
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        if self._too_long or len(self._begun) + len(piece) > self._most:
            self._begun, self._too_long = bytearray(), True
        else:
            self._begun += piece


class _Reader:
    """A thread that reads ahead, a little."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(MOST_CHUNKS)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def chunks(self) -> AsyncIterator[bytes]:
        """What is read, piece by piece; the last one is empty."""
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
                return  # the loop is closed: nobody listens any more


class _Writer:
    """A thread that writes, one message after the other."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._lines: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        threading.Thread(target=self._write, name="stdout", daemon=True).start()

    async def write(self, message: bytes) -> None:
        """Write a message. Raises OSError when nobody reads it."""
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
                return  # the loop is closed: nobody waits any more


def _settle(written: "asyncio.Future[None]", problem: OSError | None) -> None:
    if written.done():
        return
    if problem is None:
        written.set_result(None)
    else:
        written.set_exception(problem)
