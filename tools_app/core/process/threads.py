"""Threads of a process: each has a name, none keeps the process alive, and none leaves a database connection open.

For work of tenants, which takes turns in a few threads, see `fair_threads`; for event loops in threads, `thread_loops`.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread, Timer
from typing import Final, TypeVar

from django.db import connections

log = logging.getLogger(__name__)

T = TypeVar("T")

STRAGGLER_SECONDS: Final = 2.0


def start_thread(name: str, work: Callable[[], object]) -> Thread:
    """Start a thread that does `work`."""
    thread = Thread(target=with_own_connections, args=[work], name=name, daemon=True)
    thread.start()
    return thread


def with_own_connections(work: Callable[[], T]) -> T:
    """Return the result of `work`, after which the database connections of this thread are closed."""
    try:
        return work()
    finally:
        with suppress(Exception):
            connections.close_all()


class Job:
    """Work in a thread of its own, one run at a time, so that nothing waits for it.

    `work` gets an event that tells it to end. A run that fails is logged with the name; the next one may succeed.
    """

    def __init__(self, name: str, work: Callable[[Event], object]) -> None:
        self._name = name
        self._work = work
        self.stopping = Event()
        self._thread: Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether a run is in progress."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start a run, unless one is in progress or the job has stopped."""
        if not self.stopping.is_set() and not self.is_running:
            self._thread = start_thread(self._name, self._run)

    def stop(self, seconds: float) -> None:
        """Tell the run to end, and wait for it at most `seconds`. No other one starts."""
        self.stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._work(self.stopping)
        except Exception as problem:  # noqa: BLE001 - the database may be away for a while
            log.warning("Postponed, %s: %s", self._name, problem)


def leave_stragglers_behind() -> None:
    """End the process soon, although a thread never returns: Python would wait for it forever.

    By now each call is recorded, and nothing is left to write.
    """
    watchdog = Timer(STRAGGLER_SECONDS, os._exit, args=[0])
    watchdog.daemon = True
    watchdog.start()
