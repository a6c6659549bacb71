"""The recorder: what it confirms is stored, and a bad row does not affect others."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.utils import timezone

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import CallEventEntry, Entry, EventRow
from tools_app.audit.recorder.recorder import Recorder, RecorderUnavailable
from tools_app.audit.recorder.writers import writer
from tools_app.core.ids import new_id
from tools_app.models import CallEvent

WAIT_SECONDS = 30.0


def saying(kind: str | None = "progress", topic: str = "") -> Entry:
    return CallEventEntry(EventRow(new_id(), 1, timezone.now(), kind, "{}"), topic)  # type: ignore[arg-type]


class Gate:
    """A writer that blocks until its gate opens, so that a queue builds up behind the first batch."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, batch):
        self.reached.set()
        assert self.opened.wait(WAIT_SECONDS)
        return writer()(batch)


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
    monkeypatch.setattr(recorder, "writer", lambda: gate)
    yield gate
    gate.opened.set()


def test_what_is_recorded_is_there(small: Recorder) -> None:
    assert small.record(saying(), WAIT_SECONDS) is True
    assert CallEvent.objects.count() == 1


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
