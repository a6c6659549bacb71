"""The alert thread: it runs in one process, and a failing step does not stop the others."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tools_app.alerts import evaluation, runner
from tools_app.alerts.runner import AlertRunner, PeriodicTask

WAIT_SECONDS = 20.0


class Clock:
    """A clock that stands still until it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(runner, "monotonic", found)
    monkeypatch.setattr(runner, "close_old_connections", lambda: None)
    return found


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Iterator[AlertRunner]:
    """A runner in the process that evaluates rules."""
    monkeypatch.setattr(evaluation, "is_evaluator", lambda _process: True)
    monkeypatch.setattr(runner, "close_old_connections", lambda: None)
    alert_runner = AlertRunner()
    yield alert_runner
    alert_runner.job.stop(WAIT_SECONDS)


def fail() -> None:
    raise OSError("the database is away")


def test_a_step_that_fails_stops_no_other_and_is_logged_by_its_name(
    alerts: AlertRunner, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    alerts._tasks = [
        PeriodicTask("the first", lambda: done.append("first")),
        PeriodicTask("the second", fail),
        PeriodicTask("the third", fail),
        PeriodicTask("the fourth", lambda: done.append("fourth")),
    ]
    with caplog.at_level(logging.WARNING):
        alerts.run()
    assert done == ["first", "fourth"]
    assert [record.getMessage() for record in caplog.records] == [
        "Alerts: the second is postponed: the database is away",
        "Alerts: the third is postponed: the database is away",
    ]


def test_a_step_is_due_again_after_it_succeeded_and_at_once_after_it_failed(clock: Clock) -> None:
    times: list[float] = []
    ends = iter([None, OSError("away"), None, None])

    def work() -> None:
        times.append(clock.now)
        clock.now += 7
        if (problem := next(ends)) is not None:
            raise problem

    step = PeriodicTask("the work", work, interval=20.0)
    for now in (1000, 1026, 1027, 1035, 1061, 1062):
        clock.now = max(clock.now, now)
        step.run_if_due()
    # 20 s after the first one ended, at once after the one that failed, and 20 s after that one ended.
    assert times == [1000, 1027, 1035, 1062]


def test_a_slow_run_holds_up_nobody_and_a_process_that_is_not_chosen_runs_nothing(
    alerts: AlertRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Semaphore(0), threading.Event()

    def work() -> None:
        began.release()
        assert may_end.wait(WAIT_SECONDS)

    alerts._tasks = [PeriodicTask("the work", work)]
    monkeypatch.setattr(evaluation, "is_evaluator", lambda _process: False)
    alerts.run_if_chosen()
    assert not alerts.job.is_running
    monkeypatch.setattr(evaluation, "is_evaluator", lambda _process: True)
    alerts.run_if_chosen()
    assert began.acquire(timeout=WAIT_SECONDS)
    alerts.run_if_chosen()
    may_end.set()
    alerts.job.stop(WAIT_SECONDS)
    assert not began.acquire(blocking=False), "one run at a time, and none after the end"


@pytest.mark.django_db
def test_a_run_evaluates_delivers_and_prunes(alerts: AlertRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    for module, name in (
        (runner.evaluation, "resolve_disabled"),
        (runner.evaluation, "evaluate"),
        (runner.evaluation, "prune"),
        (runner.delivery, "deliver_due"),
    ):
        monkeypatch.setattr(module, name, lambda *_, name=name: done.append(name))
    AlertRunner().run()
    assert done == ["resolve_disabled", "evaluate", "prune", "deliver_due"]
