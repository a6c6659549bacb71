"""A supervisor of several web processes behind one port: starts, monitors, replaces and stops them.

All of them accept from one listening socket, which this process holds open. A connection that is not yet accepted is
therefore never lost when one of them ends.

uvicorn's own supervisor does not serve: its processes run only uvicorn's `Server`, which loses requests on idle
connections when it stops; they outlive it when it is killed; and it handles no signal while a process drains.
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
KILL_SECONDS = 20.0
# A process that ran for less than this is restarted after a delay; repeated failures increase the delay.
STABLE_SECONDS = 30.0
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
READY = b"1"
NOTIFY_VARIABLE = "NOTIFY_SOCKET"


class ProcessNotStarted(Exception):
    """A web process ended before it was ready; its log has the reason."""


class ChildProcess:
    """One web process, and the channel on which it reports that it is ready and detects the end of the supervisor."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self.started_at = time.monotonic()
        self._process = process
        self._channel = channel

    @classmethod
    async def start(cls, listener: socket.socket) -> Self:
        """Start a process with this command line that accepts from `listener`."""
        own_channel, child_channel = socket.socketpair()
        own_channel.setblocking(False)
        command = [*get_child_arguments(), "--fd", str(listener.fileno()), "--supervised", str(child_channel.fileno())]
        environment = {name: value for name, value in os.environ.items() if name != NOTIFY_VARIABLE}
        with child_channel:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                pass_fds=(listener.fileno(), child_channel.fileno()),
                # Ctrl-C reaches only the supervisor, which forwards it once.
                process_group=0,
            )
        return cls(process, own_channel)

    async def wait_ready(self) -> bool:
        """Wait until the process is ready; False if it ended instead."""
        return await asyncio.get_running_loop().sock_recv(self._channel, len(READY)) == READY

    async def wait(self) -> int:
        """Wait for the process to end; returns the exit code."""
        code = await self._process.wait()
        self._channel.close()
        return code

    async def terminate(self) -> int:
        """Let the process drain, and kill it after a timeout; returns the exit code."""
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(settings.MCPHUB_DRAIN_TIMEOUT + KILL_SECONDS):
                return await self.wait()
        except TimeoutError:
            logger.error("Web process %d did not stop and was killed.", self._process.pid)
            self.kill()
            return await self.wait()

    def kill(self) -> None:
        """Kill the process."""
        self._send(signal.SIGKILL)

    def _send(self, signal_number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal_number)


class Supervisor:
    """Keeps a number of web processes running behind one listening socket."""

    def __init__(self, listener: socket.socket, processes: int, report: Callable[[str], None]) -> None:
        self._listener = listener
        self._processes = processes
        self._report = report
        self._children: list[ChildProcess] = []
        # All processes: those that serve, start and drain.
        self._all_children: set[ChildProcess] = set()
        self._locks = [asyncio.Lock() for _ in range(processes)]
        self._stopping = asyncio.Event()
        self._replacing = asyncio.Event()

    def run(self, ready: Callable[[], None]) -> bool:
        """Serve until SIGTERM or SIGINT; `ready` is called when all processes are ready. Raises ProcessNotStarted.

        SIGHUP replaces the processes. Returns False if one of them did not end properly.
        """
        return asyncio.run(self._run(ready))

    async def _run(self, ready: Callable[[], None]) -> bool:
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._replacing.set)
        self._children = await self._start_all()
        ready()
        tasks = [asyncio.create_task(self._restart_on_exit(number)) for number in range(self._processes)]
        tasks.append(asyncio.create_task(self._replace_on_request()))
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return await self._terminate_all()

    def _stop(self) -> None:
        """Start the shutdown. A second signal kills the processes."""
        if self._stopping.is_set():
            for child in self._all_children:
                child.kill()
        self._stopping.set()
        notify_stopping()

    async def _start_all(self) -> list[ChildProcess]:
        try:
            async with asyncio.TaskGroup() as group:
                starting = [group.create_task(self._start()) for _ in range(self._processes)]
        except* ProcessNotStarted as problems:
            raise problems.exceptions[0] from None
        return [start.result() for start in starting]

    async def _start(self) -> ChildProcess:
        """Start a process and wait until it is ready. Raises ProcessNotStarted."""
        child = await ChildProcess.start(self._listener)
        self._all_children.add(child)
        try:
            if await child.wait_ready():
                return child
        except asyncio.CancelledError:
            child.kill()
            raise
        await self._wait(child)
        raise ProcessNotStarted("A web process did not start. See its output above.")

    async def _wait(self, child: ChildProcess) -> int:
        code = await child.wait()
        self._all_children.discard(child)
        return code

    async def _terminate(self, child: ChildProcess) -> int:
        code = await child.terminate()
        self._all_children.discard(child)
        return code

    async def _terminate_all(self) -> bool:
        self._listener.close()
        codes = await asyncio.gather(*map(self._terminate, self._all_children))
        return not any(codes)

    async def _restart_on_exit(self, number: int) -> None:
        """Restart the process of one slot whenever it ends."""
        while True:
            child = self._children[number]
            code = await self._wait(child)
            async with self._locks[number]:
                if self._children[number] is child:
                    logger.error("A web process exited unexpectedly (%d). Starting another one.", code)
                    was_stable = time.monotonic() - child.started_at > STABLE_SECONDS
                    self._children[number] = await self._start_with_retry(0.0 if was_stable else MIN_PAUSE_SECONDS)

    async def _start_with_retry(self, pause: float) -> ChildProcess:
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._start()
            except ProcessNotStarted:
                pause = min(max(pause * 2, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)

    async def _replace_on_request(self) -> None:
        """Replace all processes whenever that is requested."""
        while True:
            await self._replacing.wait()
            self._replacing.clear()
            notify_reloading()
            try:
                for number in range(self._processes):
                    await self._replace(number)
                self._report("mcphub has replaced its web processes.")
            except ProcessNotStarted:
                logger.error("The new web process did not start. The old ones keep running.")
            notify_ready()

    async def _replace(self, number: int) -> None:
        """Start a replacement for a process, then let the old one drain. Raises ProcessNotStarted."""
        async with self._locks[number]:
            old, self._children[number] = self._children[number], await self._start()
        await self._terminate(old)


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
