"""Standard streams: one JSON-RPC message a line, for clients that only start processes (stdio, §Sending Messages)."""

import asyncio
from collections.abc import AsyncIterator
from typing import BinaryIO

from tools_app.models.config import config
from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.transport import state
from tools_app.transport.connection import Authenticate, Connection, Write

ADDRESS = "stdio"


async def serve(authenticate: Authenticate, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer the messages of `source` on `sink` until it ends. Nothing but messages is ever written there."""
    loop, writing = asyncio.get_running_loop(), asyncio.Lock()

    async def write(message: bytes) -> None:
        async with writing:
            await loop.run_in_executor(None, _write, sink, message)

    await Connection(authenticate, ADDRESS, state.current(), write).serve(_lines(source, write), finish=True)


async def _lines(source: BinaryIO, refuse: Write) -> AsyncIterator[bytes]:
    """The lines of `source` without empty ones. One that is too long is refused, and the rest of it skipped."""
    loop, most = asyncio.get_running_loop(), config.MCPHUB_MAX_BODY_BYTES
    while line := await loop.run_in_executor(None, source.readline, most + 1):
        if len(line) > most:
            while line and not line.endswith(b"\n"):
                line = await loop.run_in_executor(None, source.readline, most)
            error = RpcError(INVALID_REQUEST, f"The message is larger than {most} bytes.")
            await refuse(jsonrpc.error_message(None, error))
        elif line.strip():
            yield line


def _write(sink: BinaryIO, message: bytes) -> None:
    sink.write(message + b"\n")
    sink.flush()
