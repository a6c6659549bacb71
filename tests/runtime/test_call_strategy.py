"""The worker's strategy for messages of calls: run in threads, acknowledged at the start."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from celery import current_app
from celery.concurrency.prefork import TaskPool as Processes
from celery.concurrency.thread import TaskPool as Threads

from tools_app.calls.background import queue, worker
from tools_app.runtime import process, tasks
from tools_app.runtime.call_strategy import call_strategy

WAIT_SECONDS = 30


@pytest.fixture
def pool() -> Iterator[Any]:
    threads: Any = Threads(2)
    yield threads
    threads.executor.shutdown()


@pytest.fixture
def receive(pool: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[UUID, list[UUID]], None]:
    """Deliver a message with this ID to the consumer; its acknowledgement appends the ID."""
    monkeypatch.setattr(process, "start", lambda _kind: None)
    task: Any = tasks.run_call
    take = task.start_strategy(current_app, SimpleNamespace(pool=pool, connection_errors=(OSError,)))

    def received(id: UUID, acknowledged: list[UUID]) -> None:
        message = SimpleNamespace(headers=queue.headers_of(str(id)))
        take(message, None, lambda _log, _errors: acknowledged.append(id), None, [])

    return received


def test_messages_wait_for_a_thread_and_are_acknowledged_when_their_call_starts(
    receive: Callable[[UUID, list[UUID]], None], monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    ended, acknowledged, ran = threading.Event(), list[UUID](), list[UUID]()

    def run_claimed(id: UUID) -> None:
        assert id in acknowledged
        ran.append(id)
        assert ended.wait(WAIT_SECONDS)

    monkeypatch.setattr(worker, "run_claimed", run_claimed)
    first, second, third = (uuid4() for _ in range(3))
    for id in (first, second, third):
        receive(id, acknowledged)

    assert eventually(lambda: len(ran) == 2)
    assert sorted(acknowledged) == sorted([first, second])
    ended.set()
    assert eventually(lambda: ran[2:] == [third])


def test_a_call_that_cannot_be_claimed_is_logged_and_the_next_one_runs(
    receive: Callable[[UUID, list[UUID]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    eventually: Any,
) -> None:
    ran = list[UUID]()

    def run_claimed(id: UUID) -> None:
        ran.append(id)
        if len(ran) <= 2:
            raise OSError("the database is unavailable")

    monkeypatch.setattr(worker, "run_claimed", run_claimed)
    ids = [uuid4() for _ in range(3)]
    for id in ids:
        receive(id, [])

    assert eventually(lambda: sorted(ran) == sorted(ids))
    assert eventually(lambda: caplog.text.count("OSError: the database is unavailable") == 2)
    assert all(str(id) in caplog.text for id in ran[:2])


def test_a_pool_of_processes_runs_calls_as_celery_does() -> None:
    consumer = SimpleNamespace(pool=Processes.__new__(Processes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("celery.worker.strategy.default", lambda *arguments: arguments)
        assert call_strategy("task", "app", consumer) == ("task", "app", consumer)  # type: ignore[arg-type, comparison-overlap]
