"""The recorder: what it confirms is stored, a bad row affects no other, and nobody waits for a database that hangs."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from django.db import OperationalError
from django.utils import timezone

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import CallEventEntry, CallFinished, Entry, EventRow, Facts, FinishedRow, Payload
from tools_app.audit.recorder.recorder import Recorder, RecorderUnavailable
from tools_app.audit.recorder.writers import write
from tools_app.core import database
from tools_app.core.ids import new_id
from tools_app.core.telemetry.registry import MetricRegistry
from tools_app.models import CallEvent

WAIT_SECONDS = 30.0


def saying(kind: str | None = "progress", topic: str = "") -> Entry:
    return CallEventEntry(EventRow(new_id(), 1, timezone.now(), kind, "{}"), topic)  # type: ignore[arg-type]


class Gate:
    """A writer that blocks until its gate opens, so that a queue builds up behind the first batch."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, entries):
        self.reached.set()
        assert self.opened.wait(WAIT_SECONDS)
        return write(entries)


@pytest.fixture
def rung() -> list[tuple[str, bytes]]:
    return []


@pytest.fixture
def small(transactional_db: None, rung: list[tuple[str, bytes]]) -> Iterator[Recorder]:
    recorder = Recorder(3, rung.extend)
    yield recorder
    recorder.close()


@pytest.fixture
def gate(small: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(recorder, "write", gate)
    yield gate
    gate.opened.set()


def test_a_poisoned_row_fails_alone(gate: Gate, small: Recorder) -> None:
    with ThreadPoolExecutor(3) as threads:
        small.submit(saying())
        assert gate.reached.wait(WAIT_SECONDS)
        waiting = [threads.submit(small.record, saying(kind), WAIT_SECONDS) for kind in ("log", None, "log")]
        gate.opened.set()
        problems = [future.exception(WAIT_SECONDS) for future in waiting]
    assert [type(problem) for problem in problems] == [type(None), RecorderUnavailable, type(None)]
    assert CallEvent.objects.count() == 3


def test_a_record_that_cannot_be_announced_is_durable_and_so_is_the_next(transactional_db: None) -> None:
    def closed(_notifications: object) -> None:
        raise RuntimeError("Event loop is closed")

    recorder = Recorder(3, closed)
    try:
        assert recorder.record(saying(topic="call:1"), WAIT_SECONDS) is True
        assert recorder.record(saying(), WAIT_SECONDS) is True
    finally:
        recorder.close()
    assert CallEvent.objects.count() == 2


def test_a_full_queue_is_refused_at_once(gate: Gate, small: Recorder) -> None:
    small.submit(saying())
    assert gate.reached.wait(WAIT_SECONDS)
    for _ in range(3):
        small.submit(saying())
    with pytest.raises(RecorderUnavailable, match="full"):
        small.submit(saying())


def test_closing_writes_what_waits_and_then_takes_nothing_more(small: Recorder) -> None:
    small.submit(saying())
    small.close()
    assert CallEvent.objects.count() == 1
    with pytest.raises(RecorderUnavailable, match="closed"):
        small.submit(saying())


def test_topics_ring_once_they_are_durable(small: Recorder, rung: list[tuple[str, bytes]]) -> None:
    small.record(saying(topic="call.1"), WAIT_SECONDS)
    small.close()
    assert rung == [("call.1", b"")]


# --- A database that hangs ---------------------------------------------------------------------------------------


@pytest.fixture
def hanging(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Recorder, Gate]]:
    """A recorder in the middle of a commit that lasts until its gate is opened."""
    monkeypatch.setattr(recorder, "STUCK_SECONDS", 0.1)
    monkeypatch.setattr(recorder, "WATCH_SECONDS", 0.02)
    gate = Gate()
    monkeypatch.setattr(recorder, "write", gate)
    hung_recorder = Recorder(10, lambda _topics: None)
    hung_recorder.submit(saying())
    assert gate.reached.wait(WAIT_SECONDS)
    yield hung_recorder, gate
    gate.opened.set()
    hung_recorder.close()


def test_who_waits_is_told_and_who_comes_is_refused_at_once(hanging: tuple[Recorder, Gate]) -> None:
    recorder, _ = hanging
    with pytest.raises(RecorderUnavailable, match="does not answer"):
        recorder.record(saying(), WAIT_SECONDS)
    with pytest.raises(RecorderUnavailable, match="does not answer"):
        recorder.submit(saying())


def test_it_goes_on_when_the_database_does(
    hanging: tuple[Recorder, Gate], monkeypatch: pytest.MonkeyPatch, eventually
) -> None:
    hung_recorder, gate = hanging
    with pytest.raises(RecorderUnavailable):
        hung_recorder.record(saying(), WAIT_SECONDS)
    # The commits that follow may take longer than the bound of the fixture.
    monkeypatch.setattr(recorder, "STUCK_SECONDS", WAIT_SECONDS)
    gate.opened.set()
    assert eventually(lambda: recorded(hung_recorder))
    assert CallEvent.objects.count() == 2  # entries whose callers gave up were not written


def recorded(recorder: Recorder) -> bool:
    try:
        return recorder.record(saying(), WAIT_SECONDS)
    except RecorderUnavailable:
        return False


def test_a_query_that_hangs_is_waited_for_no_longer_than_some_seconds(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_SECONDS", 0.1)
    over = threading.Event()
    try:
        with pytest.raises(OperationalError, match="does not answer"):
            asyncio.run(database.run_in_db_thread(over.wait, WAIT_SECONDS))
    finally:
        over.set()


# --- Counters ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """The counters of the batches of a test: `counted()`."""
    metrics_registry = MetricRegistry()
    monkeypatch.setattr(recorder, "metrics_registry", metrics_registry)
    return lambda: {(name, *labels): value for name, labels, value in metrics_registry.snapshot()["counts"]}


def finished(outcome="ok", **more):
    facts = dict.fromkeys(Facts._fields, "") | {"id": uuid4(), "method": "tools/call", "protocol_version": "2025-11-25"}
    ended = dict.fromkeys(FinishedRow._fields, 0) | {"outcome": outcome, "background": False, "duration_us": 1500}
    facts |= {name: value for name, value in more.items() if name in facts}
    ended |= {name: value for name, value in more.items() if name in ended}
    return CallFinished(
        Facts(**facts), FinishedRow(**ended), Payload(**dict.fromkeys(Payload._fields, "")), settles=False
    )


def test_a_call_that_somebody_else_settled_is_not_counted_again(counted):
    mine, theirs = finished(), finished()
    recorder.count_written([mine, theirs], {theirs.call_id}, 0.001)

    assert counted()["mcphub_calls_total", "tools/call", "ok", "2025-11-25", "inline"] == 1


def test_denials_count_for_all_that_they_stand_for(counted):
    recorder.count_written(
        [finished("denied", http_status=401, repeated=40), finished("denied", http_status=429, repeated=1)], (), 1
    )

    assert counted()["mcphub_denials_total", "401"] == 40
    assert counted()["mcphub_denials_total", "429"] == 1
    assert not [key for key in counted() if key[0] == "mcphub_calls_total"]


def test_a_method_that_a_client_made_up_is_no_label(counted):
    recorder.count_written([finished(method="made/up")], (), 1)

    assert ("mcphub_calls_total", "other", "ok", "2025-11-25", "inline") in counted()


def test_tenants_are_counted_only_if_that_is_wanted(counted, settings):
    recorder.count_written([finished(tenant_id="t-1")], (), 1)
    assert not [key for key in counted() if "tenant" in key[0]]
    settings.MCPHUB_METRICS_BY_TENANT = True
    recorder.count_written([finished(tenant_id="t-1")], (), 1)

    assert counted()["mcphub_tenant_calls_total", "t-1", "ok"] == 1
