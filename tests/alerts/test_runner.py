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
    alert_runner.stop()


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


def test_one_thread_does_all_runs(alerts: AlertRunner) -> None:
    threads: list[threading.Thread] = []
    ran = threading.Semaphore(0)

    def work() -> None:
        threads.append(threading.current_thread())
        ran.release()

    alerts._tasks = [PeriodicTask("the work", work)]
    for _ in range(3):
        alerts.run_if_chosen()
        assert ran.acquire(timeout=WAIT_SECONDS)
    assert len(set(threads)) == 1
    alerts.stop()
    assert not threads[0].is_alive()
    alerts.run_if_chosen()
    assert not ran.acquire(blocking=False), "it has stopped"


def test_a_slow_run_holds_up_nobody_and_is_followed_by_one_run(alerts: AlertRunner) -> None:
    began, may_end = threading.Semaphore(0), threading.Semaphore(0)

    def work() -> None:
        began.release()
        assert may_end.acquire(timeout=WAIT_SECONDS)

    alerts._tasks = [PeriodicTask("the work", work)]
    alerts.run_if_chosen()
    assert began.acquire(timeout=WAIT_SECONDS)
    for _ in range(3):
        alerts.run_if_chosen()
    assert not began.acquire(blocking=False)
    may_end.release(2)
    assert began.acquire(timeout=WAIT_SECONDS)
    alerts.stop()
    assert not began.acquire(blocking=False)


def test_a_process_that_is_not_chosen_has_no_thread(alerts: AlertRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "is_evaluator", lambda _process: False)
    alerts.run_if_chosen()
    assert alerts._thread is None


def test_the_connection_is_closed_once_another_process_is_chosen(
    alerts: AlertRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, ran = threading.Event(), threading.Event()
    monkeypatch.setattr(runner, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(runner, "_close_connection", closed.set)
    alerts._tasks = [PeriodicTask("the work", ran.set)]
    alerts.run_if_chosen()
    assert ran.wait(WAIT_SECONDS)
    assert closed.wait(WAIT_SECONDS)
    ran.clear()
    alerts.run_if_chosen()
    assert ran.wait(WAIT_SECONDS), "and it goes on when this one is chosen again"


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
