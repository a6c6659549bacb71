"""A few threads for work of all owners, such as tenants: round-robin, and each owner has only so many at a time."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class QueueFull(Exception):
    """Too much work of this owner, or of all owners, waits for a thread."""


class FairThreads:
    """So many `threads`, for which at most `max_waiting` works wait, and at most `max_of_one` of one owner, if any.

    One owner has at most `threads_of_one` at a time. May be used from any number of event loops.
    """

    def __init__(
        self, name: str, threads: int, max_waiting: float = inf, max_of_one: float = inf, *, threads_of_one: int = 1
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._max_waiting, self._max_of_one, self._threads_of_one = max_waiting, max_of_one, threads_of_one
        self._lock = Lock()
        self._waiting: dict[Hashable, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._count = 0
        # The turns that each owner has in a thread or waits for, and the owners whose turns wait, the next one first.
        self._turns: Counter[Hashable] = Counter()
        self._next: deque[Hashable] = deque()

    async def run(self, owner: Hashable, work: Callable[[], T]) -> T:
        """Return the result of `work`. Raises QueueFull, and what `work` raises.

        Work that is cancelled before it begins never does.
        """
        future: Future[T] = Future()
        with self._lock:
            line = self._waiting.get(owner, deque())
            if self._count >= self._max_waiting or len(line) >= self._max_of_one:
                raise QueueFull
            line.append((future, work))
            self._waiting[owner] = line
            self._count += 1
            if self._turns[owner] < self._threads_of_one:
                self._turns[owner] += 1
                self._next.append(owner)
                self._pool.submit(self._work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # What it would work on is freed now, and not only when its turn comes.
            with self._lock:
                line = self._waiting.get(owner, deque())
                if (future, work) in line:
                    line.remove((future, work))
                    self._count -= 1
            raise

    def waiting(self, owner: Hashable) -> int:
        """Return how many works of an owner wait."""
        with self._lock:
            return len(self._waiting.get(owner, ()))

    def stop(self) -> None:
        """Begin no further work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        """Do the next work of the next owner, which may have its turn again after the others."""
        with self._lock:
            owner = self._next.popleft()
            line = self._waiting.get(owner, deque())
            future, work = line.popleft() if line else (None, None)
            self._count -= future is not None
        try:
            if future is not None and work is not None:
                _do(future, work)
        finally:
            with self._lock:
                if self._waiting.get(owner):
                    self._next.append(owner)
                    self._pool.submit(self._work)
                else:
                    self._turns[owner] -= 1
                    if not self._turns[owner]:
                        del self._turns[owner]
                        self._waiting.pop(owner, None)


def _do(future: "Future[T]", work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except StopIteration as problem:
        # The caller that waits for it could not be told of one.
        future.set_exception(RuntimeError(f"StopIteration: {problem}"))
    except BaseException as problem:  # noqa: BLE001 - it is the caller's
        future.set_exception(problem)
    finally:
        # The traceback of an exception would keep what it was done with, until the next garbage collection.
        del future, work
