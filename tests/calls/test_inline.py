"""Calls that run in the web process."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from tools_app.access.principal import Credential, authenticate
from tools_app.calls import dispatch, run
from tools_app.calls.background.start_task import TaskRequest
from tools_app.calls.invocation import Client, Invocation
from tools_app.calls.run import CallOutcome
from tools_app.core.notifications.listener import TopicListener
from tools_app.protocol.versions import Era
from tools_app.transport import state


@pytest.fixture(autouse=True)
def fresh(transactional_db: None) -> Iterator[None]:
    state.forget_everything()
    yield
    state.forget_everything()


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def call_tool(key: str, tool: str, **arguments: object) -> CallOutcome:
    principal = await authenticate(Credential(key))
    assert principal is not None
    invocation = Invocation(
        principal, None, Client("c", "1", "::1"), "2026-07-28", "1", "tools/call", tool, arguments, {}
    )
    options = dispatch.CallOptions(print, TopicListener(), lambda: False, TaskRequest.NO_EXTENSION, 60.0, print)
    ended = await dispatch.call_tool(invocation, Era.MODERN, options)
    assert isinstance(ended, CallOutcome)
    return ended


@pytest.mark.usefixtures("without_collector")
def test_a_call_that_is_over_leaves_no_work_for_the_garbage_collector(
    key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("echo")
    ran: list[weakref.ref[run.LocalCall]] = []

    class Calls(dict[UUID, run.LocalCall]):
        def __delitem__(self, id: UUID) -> None:
            ran.append(weakref.ref(self[id]))
            super().__delitem__(id)

    monkeypatch.setattr(run, "running_calls", Calls())

    assert asyncio.run(call_tool(key, "echo", message="x")).result.content[0]["text"] == "hello x"

    assert [call() for call in ran] == [None]
