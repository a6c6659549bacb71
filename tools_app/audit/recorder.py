"""The recorder: group commit. What it says is recorded is on disk.

One thread owns one connection and a bounded queue. It takes all that waits, writes it in one transaction, then
wakes those who wait: no timer, batches form by themselves while the last commit runs.
"""

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from tools_app.audit import evidence, tally
from tools_app.audit.entries import Entry, batch_of
from tools_app.audit.writers import writer

log = logging.getLogger(__name__)

LARGEST_BATCH = 500
CLOSE_SECONDS = 10.0
# A commit that takes longer is waited for no more.
STUCK_SECONDS = 5.0
WATCH_SECONDS = 0.5
HANGS = "the database does not answer"


class RecorderGone(Exception):
    """Nothing can be recorded now: the queue is full, the database is away, or the recorder is closed."""


Waiter = asyncio.Future[bool] | concurrent.futures.Future[bool] | None


class _Item(NamedTuple):
    entry: Entry
    waiter: Waiter


class Recorder:
    """Records entries in the order in which they come.

    `after_commit` is called in the recorder's thread with the topics of what just became durable.
    """

    def __init__(self, capacity: int, after_commit: Callable[[Sequence[str]], None]) -> None:
        self._capacity = capacity
        self._after_commit = after_commit
        self._queue: deque[_Item] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._nudging: set[asyncio.AbstractEventLoop] = set()
        self._closed = False
        self._batch: list[_Item] = []
        self._batch_began = 0.0
        self._stuck = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="recorder-watch", daemon=True).start()

    def submit(self, entry: Entry) -> None:
        """Record `entry` without waiting for it. Raises RecorderGone if the queue is full or closed."""
        self._put(_Item(entry, None))
        self._nudge()

    def recording(self, entry: Entry, loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[bool]:
        """Record `entry`; the future is done when it is durable: False if somebody else settled the call before.

        `loop` is the running one, for callers that know it. Raises RecorderGone, here or from the future.
        """
        loop = loop or asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._put(_Item(entry, waiter))
        if loop not in self._nudging:
            # Once a turn of the loop, not at each entry: what comes in one turn is one batch.
            self._nudging.add(loop)
            loop.call_soon(self._nudge_once, loop)
        return waiter

    def record(self, entry: Entry, timeout: float = 30.0) -> bool:
        """The same for a thread that can wait."""
        waiter: concurrent.futures.Future[bool] = concurrent.futures.Future()
        self._put(_Item(entry, waiter))
        self._nudge()
        try:
            return waiter.result(timeout)
        except concurrent.futures.TimeoutError:
            raise RecorderGone("the recorder did not answer in time") from None

    def close(self) -> None:
        """Write what waits and stop. Bounded by CLOSE_SECONDS."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)

    @property
    def waiting(self) -> int:
        """How many records wait for their commit."""
        return len(self._queue)

    def _put(self, item: _Item) -> None:
        with self._lock:
            if self._closed:
                raise RecorderGone("the recorder is closed")
            if self._stuck:
                raise RecorderGone(HANGS)
            if len(self._queue) >= self._capacity:
                raise RecorderGone("the recorder's queue is full")
            self._queue.append(item)

    def _nudge_once(self, loop: asyncio.AbstractEventLoop) -> None:
        self._nudging.discard(loop)
        self._nudge()

    def _nudge(self) -> None:
        with self._changed:
            self._changed.notify()

    def _work(self) -> None:
        while items := self._take():
            self._write(items)
            with self._lock:
                self._batch, self._stuck = [], False
        self._ended.set()
        evidence.sign_last()
        connection.close()

    def _take(self) -> list[_Item]:
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            count = min(len(self._queue), LARGEST_BATCH)
            self._batch = [self._queue.popleft() for _ in range(count)]
            self._batch_began = monotonic()
            return self._batch

    def _watch(self) -> None:
        """Let nobody wait for a database that hangs: until it goes on, whoever records is refused at once."""
        while not self._ended.wait(WATCH_SECONDS):
            with self._lock:
                was_stuck = self._stuck
                self._stuck = bool(self._batch) and monotonic() - self._batch_began > STUCK_SECONDS
                items = [*self._batch, *self._queue] if self._stuck else []
                if self._stuck:
                    submitted = [item for item in self._queue if item.waiter is None]
                    self._queue.clear()
                    self._queue.extend(submitted)
            if self._stuck and not was_stuck:
                log.error("Nothing can be recorded, and calls are refused: %s", HANGS)
            _wake([(item.waiter, RecorderGone(HANGS)) for item in items if item.waiter is not None])

    def _write(self, items: list[_Item]) -> None:
        began = perf_counter()
        entries = [item.entry for item in items]
        try:
            late = writer()(batch_of(entries))
        except Exception as problem:  # noqa: BLE001 - whoever waits is told, the thread lives on
            self._fail(items, problem)
            return
        seconds = perf_counter() - began
        _wake([(item.waiter, item.entry.call_id not in late) for item in items if item.waiter is not None])
        self._ring(items)
        try:
            tally.written(entries, late, seconds)
        except Exception:
            log.exception("Records are durable, but could not be counted")

    def _ring(self, items: list[_Item]) -> None:
        topics = dict.fromkeys(item.entry.topic for item in items if item.entry.topic)
        if topics:
            self._after_commit(list(topics))

    def _fail(self, items: list[_Item], problem: Exception) -> None:
        """One bad row must not take its batch with it; a database that is away takes all."""
        if len(items) > 1 and _is_about_the_row(problem):
            for item in items:
                self._write([item])
            return
        log.error("%d records could not be written: %s", len(items), problem)
        tally.lost(len(items))
        connection.close()
        gone = RecorderGone(str(problem))
        _wake([(item.waiter, gone) for item in items if item.waiter is not None])


def _is_about_the_row(problem: Exception) -> bool:
    kinds = {kind.__name__ for kind in type(problem).__mro__}
    return not kinds & {"OperationalError", "InterfaceError"}


def _wake(outcomes: list[tuple[Waiter, bool | RecorderGone]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, bool | RecorderGone]]] = defaultdict(list)
    for waiter, outcome in outcomes:
        if isinstance(waiter, asyncio.Future):
            by_loop[waiter.get_loop()].append((waiter, outcome))
        else:
            _settle([(waiter, outcome)])
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            log.warning("%d records are durable, but the loop that waited for them is closed", len(settled))


def _settle(outcomes: list[tuple[Waiter, bool | RecorderGone]]) -> None:
    for waiter, outcome in outcomes:
        if waiter is None or waiter.done():
            continue
        if isinstance(outcome, RecorderGone):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)


_own: list[Recorder] = []
_starting = threading.Lock()
# A forked child has the parent's recorder, but not its thread.
os.register_at_fork(after_in_child=_own.clear)
_after_commit: list[Callable[[Sequence[str]], None]] = [lambda _topics: None]


def on_commit(ring: Callable[[Sequence[str]], None]) -> None:
    """What every recorder of this process calls with the topics of what became durable."""
    _after_commit[0] = ring


def current() -> Recorder:
    """The recorder of this process, started on first use; a forked child gets its own."""
    return _own[0] if _own else _start()


def _ring_after_commit(topics: Sequence[str]) -> None:
    _after_commit[0](topics)


def _start() -> Recorder:
    with _starting:
        if not _own:
            _own.append(Recorder(settings.MCPHUB_RECORDER_QUEUE, _ring_after_commit))
        return _own[0]


def waiting() -> int:
    """How many records of this process wait for their commit."""
    return _own[0].waiting if _own else 0


def shutdown() -> None:
    """Write what waits and stop this process's recorder. The next `current()` starts a new one."""
    with _starting:
        recorder = _own.pop() if _own else None
    if recorder is not None:
        recorder.close()
