"""A client that leaves while its call is being started, or the end of its call is being written."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.calls.test_inline import call_tool
from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.writers import write
from tools_app.calls.background import delivery, queue, start_task, worker
from tools_app.calls.background.delivery import AwaitingInput
from tools_app.calls.background.start_task import TaskRequest
from tools_app.models import Call, Outcome, RunningCall, Tenant
from tools_app.tenants.limits import limits
from tools_app.toolkit import tool
from tools_app.transport import state

WAIT_SECONDS = 30.0


def test_what_is_being_recorded_stands_though_its_client_leaves(
    transactional_db: None,
    key: str,
    offer: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    offer("echo")
    state.forget_everything()
    reached, opened = threading.Event(), threading.Event()

    def slowly(entries):
        reached.set()
        assert opened.wait(WAIT_SECONDS)
        return write(entries)

    async def leave() -> None:
        monkeypatch.setattr(recorder, "write", slowly)
        calling = asyncio.create_task(call_tool(key, "echo", message="x"))
        assert await asyncio.to_thread(reached.wait, WAIT_SECONDS)
        calling.cancel()
        opened.set()
        with pytest.raises(asyncio.CancelledError):
            await calling

    asyncio.run(leave())
    recorder.current.stop()
    assert list(Call.objects.values_list("outcome", flat=True)) == [Outcome.OK]
    assert not [entry for entry in caplog.records if entry.levelno >= logging.ERROR]
    state.forget_everything()


@pytest.mark.parametrize("during", ["intent", "queueing", "promise", "questions"])
def test_a_call_whose_client_leaves_while_it_becomes_a_task_is_cancelled_and_does_not_run(
    transactional_db: None,
    tenant: Tenant,
    key: str,
    registries: None,
    offer: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    during: str,
) -> None:
    """The slots are left to the call's row: while the request held them, they were released before the call ended."""
    runs, enqueued = [], []
    reached, opened = threading.Event(), threading.Event()
    become_task, questions = start_task._become_task, start_task._questions

    @tool(background=True, task="optional" if during == "questions" else "required")
    def toil() -> None:
        runs.append("toil")

    def hold(step: str) -> None:
        if step == during:
            reached.set()
            assert opened.wait(WAIT_SECONDS)

    def write_slowly(entries: Any) -> Any:
        hold("intent")
        return write(entries)

    async def enqueue(call_id: UUID, _tenant_id: UUID) -> None:
        enqueued.append(call_id)
        await asyncio.to_thread(hold, "queueing")

    async def promise(call_id: UUID) -> None:
        await asyncio.to_thread(hold, "promise")
        await become_task(call_id)

    async def ask(*_call: Any) -> AwaitingInput:
        return AwaitingInput()

    async def read_questions(call_id: UUID) -> object:
        await asyncio.to_thread(hold, "questions")
        return await questions(call_id)

    async def leave() -> None:
        monkeypatch.setattr(recorder, "write", write_slowly)
        calling = asyncio.create_task(call_tool(key, "toil", task_request=TaskRequest.ACCEPTED))
        assert await asyncio.to_thread(reached.wait, WAIT_SECONDS)
        calling.cancel()
        asyncio.get_running_loop().call_soon(opened.set)
        with pytest.raises(asyncio.CancelledError):
            await calling

    offer("toil")
    tenant.calls_in_flight = 1
    tenant.save()
    state.forget_everything()
    monkeypatch.setattr(queue, "aenqueue", enqueue)
    monkeypatch.setattr(start_task, "_become_task", promise)
    monkeypatch.setattr(delivery, "forward_events", ask)
    monkeypatch.setattr(start_task, "_questions", read_questions)
    released = []
    monkeypatch.setattr(limits._store(), "release_soon", lambda _keys, id: released.append(id))
    asyncio.run(leave())
    recorder.current.stop()
    row = RunningCall.objects.get()
    assert (row.cancel_requested, enqueued, released) == (True, [row.pk], [])

    worker.run_claimed(row.pk)
    assert (Call.objects.get().outcome, runs) == (Outcome.CANCELLED, [])
    state.forget_everything()
