"""A program with its pipes on an event loop.

uvloop starts programs by a fork, and runs the fork handlers of all libraries in the child. Meanwhile the parent waits
and holds the interpreter: a handler that waits for a lock, which another thread held when it forked, would stop the
whole process for ever. `subprocess` runs no Python in the child.
"""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Self

from tools_app.core.process.threads import start_thread


class PipedProcess:
    """A running program. `stdin`, `stdout` and `stderr` are streams of the loop that started it."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self.popen = popen
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pipes: list[asyncio.BaseTransport] = []
        start_thread(f"process-{popen.pid}", self._reap)

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], limit: int) -> Self:
        """Start a program in a session of its own. A line that is read may have `limit` bytes.

        Raises OSError if it cannot be started, and ValueError or TypeError for text that it cannot be given.
        """
        # Not by another thread: a launcher ends with the thread that started it.
        popen = subprocess.Popen(  # noqa: S603, ASYNC220 - the operator has allowed it
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        process = cls(popen)
        try:
            # The protocol of streams pauses `drain`; its reader gets nothing.
            transport, protocol = await process._loop.connect_write_pipe(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), popen.stdin
            )
            process._pipes.append(transport)
            process.stdin = asyncio.StreamWriter(transport, protocol, None, process._loop)
            process.stdout = await process._open_reader(popen.stdout, limit)
            process.stderr = await process._open_reader(popen.stderr, limit)
        except BaseException:
            popen.kill()
            process.close()
            raise
        return process

    def close(self) -> None:
        """Close the pipes, also those that a program left behind has open."""
        for pipe in self._pipes:
            pipe.close()

    def _reap(self) -> None:
        self.popen.wait()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.ended.set)

    async def _open_reader(self, pipe: IO[bytes] | None, limit: int) -> asyncio.StreamReader:
        stream = asyncio.StreamReader(limit)
        transport, _ = await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
        self._pipes.append(transport)
        return stream
