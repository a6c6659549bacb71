"""Housekeeping continues after failures: a process without heartbeats would be considered dead."""

from threading import Event

import pytest
from django.db import OperationalError

from tools_app.calls import sweeper
from tools_app.runtime import housekeeping

WAIT_SECONDS = 30.0


@pytest.mark.parametrize("step", ["connection", "chore"])
def test_a_database_that_is_away_does_not_end_it(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    beaten_again = Event()
    beats: list[str] = []

    def away() -> None:
        raise OperationalError("away")

    def beat() -> None:
        beats.append("beat")
        if len(beats) > 1:
            beaten_again.set()
        if step == "chore":
            away()

    monkeypatch.setattr(housekeeping, "periodic_tasks", lambda: [(0.0, beat)])
    monkeypatch.setattr(housekeeping, "TICK_SECONDS", 0.01)
    if step == "connection":
        monkeypatch.setattr(housekeeping, "close_old_connections", away)
    keeper = housekeeping.Housekeeper("web")
    assert beaten_again.wait(WAIT_SECONDS)
    keeper.stop()


def test_a_chore_that_hangs_does_not_hold_up_the_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    beaten_again, over = Event(), Event()
    beats: list[str] = []

    def beat(_kind: str) -> None:
        beats.append("beat")
        if len(beats) > 1:
            beaten_again.set()

    monkeypatch.setattr(sweeper, "send_heartbeat", beat)
    monkeypatch.setattr(housekeeping, "periodic_tasks", lambda: [(0.0, lambda: over.wait(WAIT_SECONDS))])
    keeper = housekeeping.Housekeeper("web")
    assert beaten_again.wait(WAIT_SECONDS)
    over.set()
    keeper.stop()
