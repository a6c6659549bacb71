"""The recorder with a database that hangs: waiting and new callers fail quickly."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from django.db import OperationalError

from tests.audit.test_recorder import Gate, saying
from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.recorder import Recorder, RecorderUnavailable
from tools_app.core import database
from tools_app.models import CallEvent

WAIT_SECONDS = 30.0


@pytest.fixture
def hanging(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Recorder, Gate]]:
    """A recorder in the middle of a commit that lasts until its gate is opened."""
    monkeypatch.setattr(recorder, "STUCK_SECONDS", 0.1)
    monkeypatch.setattr(recorder, "WATCH_SECONDS", 0.02)
    gate = Gate()
    monkeypatch.setattr(recorder, "writer", lambda: gate)
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
