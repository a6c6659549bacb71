"""Requests that are handled together: what is asked for while one batch is handled forms the next one.

There is no timer: a request that comes alone is handled at once. Each request has its own result.
"""

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Future = asyncio.Future[R] | concurrent.futures.Future[R]


class _Batches(Generic[T, R]):
    """The requests that wait. `max_size` bounds a batch."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._lock = Lock()
        self._waiting: deque[tuple[T, Future[R]]] = deque()
        self._is_busy = False

    def fail_waiting(self, problem: Exception) -> None:
        """Fail the requests that came while the current batch is handled: they would wait in vain as well."""
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        _settle(waiting, [problem] * len(waiting))

    def _add(self, request: T, future: Future[R]) -> bool:
        """Add a request, and return whether the caller has to begin to handle what waits."""
        with self._lock:
            self._waiting.append((request, future))
            is_first, self._is_busy = not self._is_busy, True
        return is_first

    def _take(self) -> list[tuple[T, Future[R]]]:
        """Return the next batch; nothing if no more is handled."""
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_size))]
            self._is_busy = bool(taken)
        return taken


class AsyncBatches(_Batches[T, R]):
    """Requests on one event loop. `handle` returns a result for each of a batch, or the error that it gets.

    What `handle` raises, all of the batch get. An error without a waiting caller is not logged.
    """

    def __init__(self, handle: Callable[[list[T]], Awaitable[Sequence[R | Exception]]], max_size: int) -> None:
        super().__init__(max_size)
        self._handle = handle
        self._task: asyncio.Task[None] | None = None

    def submit(self, request: T, future: "asyncio.Future[R] | None" = None) -> "asyncio.Future[R]":
        """Handle a request with the next batch, and return its `future`, by default a new one."""
        loop = asyncio.get_running_loop()
        future = future or loop.create_future()
        if self._add(request, future):
            # In a context of its own: it belongs to none of those that wait for it.
            self._task = loop.create_task(self._run(), context=Context())
        return future

    async def _run(self) -> None:
        while batch := self._take():
            try:
                results = await self._handle([request for request, _ in batch])
            except Exception as problem:  # noqa: BLE001 - for those that wait
                results = [problem] * len(batch)
            except BaseException:
                for _, future in (*batch, *self._waiting):
                    future.cancel()
                self._waiting.clear()
                self._is_busy = False
                raise
            _settle(batch, results)


class ThreadBatches(_Batches[T, R]):
    """Requests of threads. `start` runs a function in another thread, for one batch; `handle` is as above."""

    def __init__(
        self,
        handle: Callable[[list[T]], Sequence[R | Exception]],
        start: Callable[[Callable[[], None]], object],
        max_size: int,
    ) -> None:
        super().__init__(max_size)
        self._handle = handle
        self._start = start

    def submit(self, request: T) -> "concurrent.futures.Future[R]":
        """Handle a request with the next batch."""
        future: concurrent.futures.Future[R] = concurrent.futures.Future()
        if self._add(request, future):
            self._begin()
        return future

    def _begin(self) -> None:
        try:
            self._start(self._run)
        except RuntimeError as problem:  # the process ends
            self.fail_waiting(problem)
            self._is_busy = False

    def _run(self) -> None:
        batch = self._take()
        if not batch:
            return
        try:
            _settle(batch, self._handle([request for request, _ in batch]))
        except BaseException as problem:  # noqa: BLE001 - for those that wait
            _settle(batch, [problem] * len(batch))
        with self._lock:
            self._is_busy = bool(self._waiting)
        if self._is_busy:
            self._begin()


def _settle(batch: Sequence[tuple[object, Future[R]]], results: Sequence[R | BaseException]) -> None:
    for (_, future), result in zip(batch, results, strict=True):
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
            if isinstance(future, asyncio.Future):
                future.exception()
        else:
            future.set_result(result)
