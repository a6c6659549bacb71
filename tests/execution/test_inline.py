"""Calls that run in the web process."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from tools_app.auth.principal import Credential, authenticate
from tools_app.events.switchboard import Switchboard
from tools_app.execution import dispatch, local
from tools_app.execution.invocation import Client, Invocation
from tools_app.execution.run import Ran
from tools_app.execution.tasking import TaskWish
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


async def called(key: str, tool: str, **arguments: object) -> Ran:
    principal = await authenticate(Credential(key))
    assert principal is not None
    invocation = Invocation(
        principal, None, Client("c", "1", "::1"), "2026-07-28", "1", "tools/call", tool, arguments, {}
    )
    ways = dispatch.Ways(print, Switchboard(), lambda: False, TaskWish.UNKNOWN, 60.0)
    ended = await dispatch.call_tool(invocation, Era.MODERN, ways)
    assert isinstance(ended, Ran)
    return ended


@pytest.mark.usefixtures("without_collector")
def test_a_call_that_is_over_leaves_no_work_for_the_garbage_collector(
    key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("echo")
    ran: list[weakref.ref[local.LocalCall]] = []
    monkeypatch.setattr(local, "remove", lambda call: ran.append(weakref.ref(call)) or local._running.pop(call.id))

    assert asyncio.run(called(key, "echo", message="x")).result.content[0]["text"] == "hello x"

    assert [call() for call in ran] == [None]
