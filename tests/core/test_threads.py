"""Jobs run one at a time in a thread of their own, and again after a failure, until they are stopped."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tools_app.core.process.threads import Job

WAIT_SECONDS = 10.0


def test_a_job_that_fails_is_logged_and_runs_again(
    caplog: pytest.LogCaptureFixture, eventually: Callable[..., Any]
) -> None:
    runs: list[threading.Thread] = []

    def fail(_stopping: threading.Event) -> None:
        runs.append(threading.current_thread())
        raise OSError("away")

    job = Job("the work", fail)
    for count in (1, 2):
        job.start()
        assert eventually(lambda: not job.is_running)
        assert caplog.messages == ["Postponed, the work: away"] * count
    assert all(thread.daemon and thread.name == "the work" for thread in runs)


def test_a_job_runs_once_at_a_time_and_ends_when_it_is_told_to() -> None:
    began = threading.Semaphore(0)

    def work(stopping: threading.Event) -> None:
        began.release()
        assert stopping.wait(WAIT_SECONDS)

    job = Job("the work", work)
    job.start()
    assert began.acquire(timeout=WAIT_SECONDS)
    job.start()
    job.stop(WAIT_SECONDS)
    assert not job.is_running
    job.start()
    assert not began.acquire(blocking=False)
