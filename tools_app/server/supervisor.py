"""A supervisor of several web processes behind one port: starts, monitors, replaces and stops them.

All of them accept from one listening socket, which this process holds open. A connection that is not yet accepted is
therefore never lost when one of them ends.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Self

from django.conf import settings
from django.utils.autoreload import get_child_arguments

logger = logging.getLogger(__name__)

# The time that a process has to end, in addition to MCPHUB_DRAIN_TIMEOUT; then it is killed.
END_SECONDS = 20.0
# A process that ran for less than this is restarted after a delay; repeated failures increase the delay.
SOUND_SECONDS = 30.0
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
READY = b"1"
NOTIFY_VARIABLE = "NOTIFY_SOCKET"


class NotStarted(Exception):
    """A web process ended before it was ready; its log has the reason."""


class Child:
    """One web process, and the channel on which it reports that it is ready and detects the end of the supervisor."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self.began = time.monotonic()
        self._process = process
        self._channel = channel

    @classmethod
    async def start(cls, listener: socket.socket) -> Self:
        """Start a process with this command line that accepts from `listener`."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        command = [*get_child_arguments(), "--fd", str(listener.fileno()), "--supervised", str(theirs.fileno())]
        environment = {name: value for name, value in os.environ.items() if name != NOTIFY_VARIABLE}
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                pass_fds=(listener.fileno(), theirs.fileno()),
                # Ctrl-C reaches only the supervisor, which forwards it once.
                process_group=0,
            )
        return cls(process, ours)

    async def is_ready(self) -> bool:
        """Wait until the process is ready; False if it ended instead."""
        return await asyncio.get_running_loop().sock_recv(self._channel, len(READY)) == READY

    async def ended(self) -> int:
        """Wait for the process to end; returns the exit code."""
        code = await self._process.wait()
        self._channel.close()
        return code

    async def end(self) -> int:
        """Let the process drain, and kill it after a timeout; returns the exit code."""
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(settings.MCPHUB_DRAIN_TIMEOUT + END_SECONDS):
                return await self.ended()
        except TimeoutError:
            logger.error("Web process %d did not stop and was killed.", self._process.pid)
            self.kill()
            return await self.ended()

    def kill(self) -> None:
        """Kill the process."""
        self._send(signal.SIGKILL)

    def _send(self, what: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(what)


class Supervisor:
    """Keeps a number of web processes running behind one listening socket."""

    def __init__(self, listener: socket.socket, processes: int, say: Callable[[str], None]) -> None:
        self._listener = listener
        self._processes = processes
        self._say = say
        self._serving: list[Child] = []
        # All processes: those that serve, start and drain.
        self._alive: set[Child] = set()
        self._locks = [asyncio.Lock() for _ in range(processes)]
        self._stopping = asyncio.Event()
        self._replacing = asyncio.Event()

    def run(self, ready: Callable[[], None]) -> bool:
        """Serve until SIGTERM or SIGINT; `ready` is called when all processes are ready. Raises NotStarted.

        SIGHUP replaces the processes. Returns False if one of them did not end properly.
        """
        return asyncio.run(self._run(ready))

    async def _run(self, ready: Callable[[], None]) -> bool:
        loop = asyncio.get_running_loop()
        for told in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(told, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._replacing.set)
        self._serving = await self._start_all()
        ready()
        tasks = [asyncio.create_task(self._keep(number)) for number in range(self._processes)]
        tasks.append(asyncio.create_task(self._keep_replacing()))
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return await self._end_all()

    def _stop(self) -> None:
        """Start the shutdown. A second signal kills the processes."""
        if self._stopping.is_set():
            for child in self._alive:
                child.kill()
        self._stopping.set()
        notify_stopping()

    async def _start_all(self) -> list[Child]:
        try:
            async with asyncio.TaskGroup() as group:
                starting = [group.create_task(self._start()) for _ in range(self._processes)]
        except* NotStarted as problems:
            raise problems.exceptions[0] from None
        return [start.result() for start in starting]

    async def _start(self) -> Child:
        """Start a process and wait until it is ready. Raises NotStarted."""
        child = await Child.start(self._listener)
        self._alive.add(child)
        try:
            if await child.is_ready():
                return child
        except asyncio.CancelledError:
            child.kill()
            raise
        await self._ended(child)
        raise NotStarted("A web process did not start. See its output above.")

    async def _ended(self, child: Child) -> int:
        code = await child.ended()
        self._alive.discard(child)
        return code

    async def _end(self, child: Child) -> int:
        code = await child.end()
        self._alive.discard(child)
        return code

    async def _end_all(self) -> bool:
        self._listener.close()
        codes = await asyncio.gather(*map(self._end, self._alive))
        return not any(codes)

    async def _keep(self, number: int) -> None:
        """Restart the process of one slot whenever it ends."""
        while True:
            child = self._serving[number]
            code = await self._ended(child)
            async with self._locks[number]:
                if self._serving[number] is child:
                    logger.error("A web process exited unexpectedly (%d). Starting another one.", code)
                    was_sound = time.monotonic() - child.began > SOUND_SECONDS
                    self._serving[number] = await self._start_until_it_does(0.0 if was_sound else MIN_PAUSE_SECONDS)

    async def _start_until_it_does(self, pause: float) -> Child:
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._start()
            except NotStarted:
                pause = min(max(pause * 2, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)

    async def _keep_replacing(self) -> None:
        """Replace all processes whenever that is requested."""
        while True:
            await self._replacing.wait()
            self._replacing.clear()
            notify_reloading()
            try:
                for number in range(self._processes):
                    await self._replace(number)
                self._say("mcphub has replaced its web processes.")
            except NotStarted:
                logger.error("The new web process did not start. The old ones keep running.")
            notify_ready()

    async def _replace(self, number: int) -> None:
        """Start a replacement for a process, then let the old one drain. Raises NotStarted."""
        async with self._locks[number]:
            old, self._serving[number] = self._serving[number], await self._start()
        await self._end(old)


def notify_ready() -> None:
    """Notify systemd that the hub is ready, after a start or a reload (sd_notify(3))."""
    _notify_systemd("READY=1")


def notify_reloading() -> None:
    """Notify systemd that web processes are being replaced, until `notify_ready`."""
    _notify_systemd(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def notify_stopping() -> None:
    """Notify systemd that the hub is stopping."""
    _notify_systemd("STOPPING=1")


def _notify_systemd(state: str) -> None:
    address = os.environ.get(NOTIFY_VARIABLE, "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        # "@" starts an abstract address, which the kernel writes with a zero byte.
        notifier.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
