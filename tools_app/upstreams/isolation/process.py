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
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._pipes: list[asyncio.BaseTransport] = []
        start_thread(f"process-{popen.pid}", self._reap)

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], limit: int) -> Self:
        """Start a program in a session of its own. A line that is read may have `limit` bytes.

        Raises OSError if it cannot be started, and ValueError or TypeError for text that it cannot be given.
        """
        # Not by another thread: a launcher ends with the thread that started it.
        popen = _start(command, environment)
        process = cls(popen)
        try:
            process.stdin = await process._open_writer(popen.stdin)
            process.stdout = await process._open_reader(popen.stdout, limit)
            process.stderr = await process._open_reader(popen.stderr, limit)
        except BaseException:
            process.kill()
            process.close()
            raise
        return process

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._popen.pid

    async def wait(self) -> None:
        """Wait until the program has ended."""
        await self._ended.wait()

    def terminate(self) -> None:
        """Send SIGTERM, unless the program has ended."""
        self._popen.terminate()

    def kill(self) -> None:
        """Send SIGKILL, unless the program has ended."""
        self._popen.kill()

    def close(self) -> None:
        """Close the pipes, also those that a program left behind has open."""
        for pipe in self._pipes:
            pipe.close()

    def _reap(self) -> None:
        self._popen.wait()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._ended.set)

    async def _open_reader(self, pipe: IO[bytes] | None, limit: int) -> asyncio.StreamReader:
        stream = asyncio.StreamReader(limit)
        transport, _ = await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
        self._pipes.append(transport)
        return stream

    async def _open_writer(self, pipe: IO[bytes] | None) -> asyncio.StreamWriter:
        # The protocol of streams pauses `drain`; its reader gets nothing.
        transport, protocol = await self._loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
        )
        self._pipes.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, self._loop)


def _start(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - the operator has allowed it
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
