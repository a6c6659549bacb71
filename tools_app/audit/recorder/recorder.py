"""The recorder: durable audit records by group commit.

One thread owns one connection and a bounded queue. It takes all queued entries, writes them in one transaction, then
wakes the waiters. There is no timer: batches form while the previous commit runs.
"""

import asyncio
import concurrent.futures
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from time import monotonic, perf_counter
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from tools_app.audit.checkpoints import signer
from tools_app.audit.recorder.entries import CallFinished, CallStarted, Entry
from tools_app.audit.recorder.writers import write
from tools_app.core.config import config
from tools_app.core.process.runtime import Service
from tools_app.core.process.threads import start_thread
from tools_app.core.telemetry.registry import Key, metrics_registry
from tools_app.models import BY_CALL_TOOL, TOOLS_CALL, Outcome

log = logging.getLogger(__name__)

MAX_BATCH = 500
# Records that may wait for the database; calls beyond it are rejected.
MAX_WAITING = 10_000
CLOSE_SECONDS = 10.0
# How long a thread waits for its record.
RECORD_SECONDS = 30.0
# After this time, callers no longer wait for a commit.
STUCK_SECONDS = 5.0
WATCH_SECONDS = 0.5
HANGS = "the database does not answer"
# Other methods are counted as "other", because clients choose the names of methods.
METHODS = {method: method for method in (TOOLS_CALL, "resources/read", "prompts/get")} | {BY_CALL_TOOL: TOOLS_CALL}
DENIED = Outcome.DENIED.value
MICROSECOND = 1e-6


class RecorderUnavailable(Exception):
    """Nothing can be recorded now: the queue is full, the database is unavailable, or the recorder is closed."""


AfterCommit = Callable[[Sequence[tuple[str, bytes]]], None]
Waiter = asyncio.Future[bool] | concurrent.futures.Future[bool] | None


class LastOutcome(NamedTuple):
    """The outcome of the last write: its time on the monotonic clock, and the error, empty if there is none."""

    at: float
    problem: str


class _Item(NamedTuple):
    entry: Entry
    waiter: Waiter


class Recorder:
    """Records entries in the order of submission.

    `after_commit` is called in the recorder's thread with the topics and notices of what became durable.
    """

    def __init__(self, capacity: int, after_commit: AfterCommit) -> None:
        self._capacity = capacity
        self._after_commit = after_commit
        self._queue: deque[_Item] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waking: set[asyncio.AbstractEventLoop] = set()
        self._closed = False
        self._batch: list[_Item] = []
        self._batch_began = 0.0
        self._stuck = False
        self._last: LastOutcome | None = None
        self._ended = threading.Event()
        self._thread = start_thread("recorder", self._work)
        start_thread("recorder-watch", self._watch)

    def submit(self, entry: Entry) -> None:
        """Record `entry` without waiting for it. Raises RecorderUnavailable if the queue is full or closed."""
        self._put(_Item(entry, None))
        self._wake_thread()

    def recording(self, entry: Entry, loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[bool]:
        """Record `entry`; the future completes when it is durable: False if the call was already settled elsewhere.

        `loop` is the running event loop, for callers that have it. Raises RecorderUnavailable, here or from the future.
        """
        loop = loop or asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._put(_Item(entry, waiter))
        if loop not in self._waking:
            # Once per iteration of the event loop: the entries of one iteration form one batch.
            self._waking.add(loop)
            loop.call_soon(self._wake_thread, loop)
        return waiter

    def record(self, entry: Entry, timeout: float = RECORD_SECONDS) -> bool:
        """Record `entry` and block until it is durable. Raises RecorderUnavailable."""
        return wait_for(self.recording_in_thread(entry), timeout)

    def recording_in_thread(self, entry: Entry) -> concurrent.futures.Future[bool]:
        """Record `entry`; the future, for `wait_for`, is as that of `recording`. Raises nothing itself."""
        waiter: concurrent.futures.Future[bool] = concurrent.futures.Future()
        try:
            self._put(_Item(entry, waiter))
        except RecorderUnavailable as problem:
            waiter.set_exception(problem)
        else:
            self._wake_thread()
        return waiter

    def close(self) -> None:
        """Write the queued entries and stop, within CLOSE_SECONDS."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)

    @property
    def waiting(self) -> int:
        """The number of records that wait for their commit."""
        return len(self._queue)

    @property
    def last_outcome(self) -> LastOutcome | None:
        """The outcome of the last write; None before the first, and if a single row caused the failure."""
        return LastOutcome(monotonic(), HANGS) if self._stuck else self._last

    def _put(self, item: _Item) -> None:
        with self._lock:
            if self._closed:
                raise RecorderUnavailable("the recorder is closed")
            if self._stuck:
                raise RecorderUnavailable(HANGS)
            if len(self._queue) >= self._capacity:
                raise RecorderUnavailable("the recorder's queue is full")
            self._queue.append(item)

    def _wake_thread(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        if loop is not None:
            self._waking.discard(loop)
        with self._changed:
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._batch, self._stuck = [], False
                while not self._queue and not self._closed:
                    self._changed.wait()
                count = min(len(self._queue), MAX_BATCH)
                self._batch = [self._queue.popleft() for _ in range(count)]
                self._batch_began = monotonic()
            if not self._batch:
                break
            self._write(self._batch)
        self._ended.set()
        signer.sign_last()
        connection.close()

    def _watch(self) -> None:
        """Fail waiting callers while the database hangs, and reject new entries until it responds."""
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
            _wake([(item.waiter, RecorderUnavailable(HANGS)) for item in items if item.waiter is not None])

    def _write(self, items: list[_Item]) -> None:
        began = perf_counter()
        entries = [item.entry for item in items]
        try:
            late = write(entries)
        except Exception as problem:  # noqa: BLE001 - waiters get the error, and the thread continues
            self._fail(items, problem)
            return
        seconds = perf_counter() - began
        self._last = LastOutcome(monotonic(), "")
        # Usually no call is late, and the call ids need not be read.
        _wake([(item.waiter, not (late and item.entry.call_id in late)) for item in items if item.waiter is not None])
        notifications = [
            (entry.topic, b"" if entry.call_id in late else entry.notice)
            for entry in entries
            if not isinstance(entry, CallStarted) and entry.topic
        ]
        try:
            if notifications:
                self._after_commit(notifications)
            count_written(entries, late, seconds)
        except Exception:
            # The thread continues: without it, nothing could be recorded any more.
            log.exception("Records are durable, but could not be announced or counted")

    def _fail(self, items: list[_Item], problem: Exception) -> None:
        """Retry entries one by one if a row is invalid; fail the batch if the database is unavailable."""
        if len(items) > 1 and _is_about_the_row(problem):
            for item in items:
                self._write([item])
            return
        log.error("%d records could not be written: %s", len(items), problem)
        self._last = None if _is_about_the_row(problem) else LastOutcome(monotonic(), str(problem))
        metrics_registry.add("mcphub_recorder_failed_records_total", len(items))
        connection.close()
        gone = RecorderUnavailable(str(problem))
        _wake([(item.waiter, gone) for item in items if item.waiter is not None])


def wait_for(recording: concurrent.futures.Future[bool], timeout: float) -> bool:
    """Block until a record is durable: False if the call was already settled elsewhere. Raises RecorderUnavailable."""
    try:
        return recording.result(timeout)
    except concurrent.futures.TimeoutError:
        raise RecorderUnavailable("the recorder did not answer in time") from None


def _is_about_the_row(problem: Exception) -> bool:
    kinds = {kind.__name__ for kind in type(problem).__mro__}
    return not kinds & {"OperationalError", "InterfaceError", "ReadOnlySqlTransaction"}


def _wake(outcomes: list[tuple[Waiter, bool | RecorderUnavailable]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, bool | RecorderUnavailable]]] = defaultdict(list)
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


def _settle(outcomes: list[tuple[Waiter, bool | RecorderUnavailable]]) -> None:
    for waiter, outcome in outcomes:
        if waiter is None or waiter.done():
            continue
        if isinstance(outcome, RecorderUnavailable):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)


_after_commit: list[AfterCommit] = [lambda _notifications: None]


def on_commit(notify: AfterCommit) -> None:
    """Set the function that recorders of this process call with the topics and notices of what became durable."""
    _after_commit[0] = notify


def _notify_after_commit(notifications: Sequence[tuple[str, bytes]]) -> None:
    _after_commit[0](notifications)


# The recorder of this process. It writes the queued entries and signs them when it stops.
current = Service(lambda: Recorder(MAX_WAITING, _notify_after_commit), Recorder.close)


def waiting() -> int:
    """Return how many records of this process wait for their commit."""
    recorder = current.running()
    return recorder.waiting if recorder else 0


def last_outcome() -> LastOutcome | None:
    """Return the outcome of this process's last write; None if unknown."""
    recorder = current.running()
    return recorder.last_outcome if recorder else None


def count_written(entries: Sequence[Entry], late: Collection[UUID], seconds: float) -> None:
    """Count entries that became durable together, in `seconds`. `late` calls were already settled elsewhere."""
    counts: defaultdict[Key, float] = defaultdict(float)
    values: defaultdict[Key, list[float]] = defaultdict(list)
    values["mcphub_recorder_commit_seconds", ()].append(seconds)
    values["mcphub_recorder_batch_records", ()].append(len(entries))
    by_tenant = config.MCPHUB_METRICS_BY_TENANT
    for entry in entries:
        if type(entry) is not CallFinished or entry.facts.id in late:
            continue
        facts, end = entry.facts, entry.row
        if end.outcome == DENIED:
            counts["mcphub_denials_total", (str(end.http_status),)] += end.repeated
            continue
        method, mode = METHODS.get(facts.method, "other"), "background" if end.background else "inline"
        counts["mcphub_calls_total", (method, end.outcome, facts.protocol_version, mode)] += 1
        values["mcphub_call_duration_seconds", (method, mode)].append(end.duration_us * MICROSECOND)
        if by_tenant:
            counts["mcphub_tenant_calls_total", (str(facts.tenant_id), end.outcome)] += 1
    metrics_registry.update(counts, values)
