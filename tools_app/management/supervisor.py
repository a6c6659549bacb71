"""Several web processes behind one port: started, watched over, replaced one after the other, and stopped.

All of them accept from one listening socket, which this process holds open. So a connection that nobody has accepted
yet is never lost, whichever of them ends.
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

from tools_app.management import notify

logger = logging.getLogger(__name__)

# What a process needs to end, beside MCPHUB_DRAIN_SECONDS; then it is killed.
END_SECONDS = 20.0
# What lived shorter than this is not started again at once, and what does not start at all, after pauses that grow.
SOUND_SECONDS = 30.0
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
READY = b"1"


class NotStarted(Exception):
    """A web process ended before it answered, and said why in the log."""


class Child:
    """One web process, and the channel by which it says that it answers and learns that nobody supervises it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self.began = time.monotonic()
        self._process = process
        self._channel = channel

    @classmethod
    async def start(cls, listener: socket.socket) -> Self:
        """Start one like this process, which accepts from `listener`."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        command = [*get_child_arguments(), "--fd", str(listener.fileno()), "--supervised", str(theirs.fileno())]
        environment = {name: value for name, value in os.environ.items() if name != notify.VARIABLE}
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                pass_fds=(listener.fileno(), theirs.fileno()),
                # Ctrl-C is for the supervisor, which passes it on once.
                process_group=0,
            )
        return cls(process, ours)

    async def is_ready(self) -> bool:
        """Wait until it answers; False if it ended instead."""
        return await asyncio.get_running_loop().sock_recv(self._channel, len(READY)) == READY

    async def ended(self) -> int:
        """Wait for its end: the exit code."""
        code = await self._process.wait()
        self._channel.close()
        return code

    async def end(self) -> int:
        """Let it drain, and kill it if that takes too long: the exit code."""
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(settings.MCPHUB_DRAIN_SECONDS + END_SECONDS):
                return await self.ended()
        except TimeoutError:
            logger.error("Web process %d did not stop and was killed.", self._process.pid)
            self.kill()
            return await self.ended()

    def kill(self) -> None:
        """End it without a word."""
        self._send(signal.SIGKILL)

    def _send(self, what: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(what)


class Supervisor:
    """Keeps a number of web processes alive behind one listening socket."""

    def __init__(self, listener: socket.socket, processes: int, say: Callable[[str], None]) -> None:
        self._listener = listener
        self._processes = processes
        self._say = say
        self._serving: list[Child] = []
        # Beside those that serve, the ones that start and the ones that drain.
        self._alive: set[Child] = set()
        self._locks = [asyncio.Lock() for _ in range(processes)]
        self._stopping = asyncio.Event()
        self._replacing = asyncio.Event()

    def run(self, ready: Callable[[], None]) -> bool:
        """Serve until SIGTERM or SIGINT; `ready` is called when all processes answer. Raises NotStarted.

        SIGHUP replaces the processes. False if one of them did not end properly.
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
        """Begin to stop. A second signal is from somebody who does not want to wait."""
        if self._stopping.is_set():
            for child in self._alive:
                child.kill()
        self._stopping.set()
        notify.stopping()

    async def _start_all(self) -> list[Child]:
        try:
            async with asyncio.TaskGroup() as group:
                starting = [group.create_task(self._start()) for _ in range(self._processes)]
        except* NotStarted as problems:
            raise problems.exceptions[0] from None
        return [start.result() for start in starting]

    async def _start(self) -> Child:
        """A process that answers. Raises NotStarted."""
        child = await Child.start(self._listener)
        self._alive.add(child)
        try:
            if await child.is_ready():
                return child
        except asyncio.CancelledError:
            child.kill()
            raise
        await self._ended(child)
        raise NotStarted("A web process did not start; what it said is above.")

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
        """Start another process whenever the one in this place dies."""
        while True:
            child = self._serving[number]
            code = await self._ended(child)
            async with self._locks[number]:
                if self._serving[number] is child:
                    logger.error("A web process ended by itself (%d). Another one is started.", code)
                    was_sound = time.monotonic() - child.began > SOUND_SECONDS
                    self._serving[number] = await self._start_until_it_does(
                        0.0 if was_sound else SHORTEST_PAUSE_SECONDS
                    )

    async def _start_until_it_does(self, pause: float) -> Child:
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._start()
            except NotStarted:
                pause = min(max(pause * 2, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)

    async def _keep_replacing(self) -> None:
        """Replace all processes whenever that is asked for."""
        while True:
            await self._replacing.wait()
            self._replacing.clear()
            notify.reloading()
            try:
                for number in range(self._processes):
                    await self._replace(number)
                self._say("mcphub has replaced its web processes.")
            except NotStarted:
                logger.error("The new web process did not start; the old ones stay.")
            notify.ready()

    async def _replace(self, number: int) -> None:
        """Let another process take the place of one before that is told to drain. Raises NotStarted."""
        async with self._locks[number]:
            old, self._serving[number] = self._serving[number], await self._start()
        await self._end(old)
