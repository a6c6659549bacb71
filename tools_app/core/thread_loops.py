"""Event loops of threads.

Threads that run one coroutine after the other keep their loop: a new one for each costs as much as a quick tool.
"""

import asyncio
import importlib
import threading
from collections.abc import Coroutine, Iterable
from contextvars import copy_context
from typing import Any, TypeVar

from tools_app.core.runtime import Service

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
