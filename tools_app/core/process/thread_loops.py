"""Event loops of threads: those that threads keep for one coroutine after the other, and one that has its own thread.

Threads that run one coroutine after the other keep their loop: a new one for each costs as much as a quick tool.
"""

import asyncio
import importlib
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from tools_app.core.process.runtime import Service
from tools_app.core.process.threads import start_thread

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's where it is installed, which waits and wakes for less."""
    try:
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return loop


class ThreadLoops:
    """One event loop for each thread that calls `run`."""

    def __init__(self) -> None:
        self._thread_local = threading.local()
        self._runners: list[asyncio.Runner] = []

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this thread's event loop, then cancel the tasks that it left."""
        runner: asyncio.Runner | None = getattr(self._thread_local, "runner", None)
        if runner is None:
            runner = self._thread_local.runner = asyncio.Runner(loop_factory=new_loop)
            self._runners.append(runner)
        try:
            return runner.run(coroutine, context=copy_context())
        finally:
            if left := asyncio.all_tasks(runner.get_loop()):
                runner.run(_cancel(left))

    def close(self) -> None:
        """Close the loops of threads that have ended, or are idle."""
        runners, self._runners = self._runners, []
        for runner in runners:
            if not runner.get_loop().is_running():
                runner.close()


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# The loops of this process.
thread_loops = Service(ThreadLoops, ThreadLoops.close)


class LoopThread:
    """An event loop in a thread of its own, which begins when it is created. `at_end` is the last that it runs."""

    def __init__(self, name: str, at_end: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        self._loop = new_loop()
        self._at_end = at_end
        self._thread = start_thread(name, self._run)

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the loop. Cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, in the context of the caller."""
        self._loop.call_soon_threadsafe(function)

    def stop(self, seconds: float) -> None:
        """End the loop, and wait for that at most `seconds`. What still runs is abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(seconds)

    def _run(self) -> None:
        self._loop.run_forever()
        if self._at_end is not None:
            self._loop.run_until_complete(self._at_end())
        self._loop.close()
