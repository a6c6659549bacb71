"""A client that leaves while its call's end is being written."""

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from tests.calls.test_inline import call_tool
from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.writers import writer
from tools_app.models import Call, Outcome
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

    def slowly(batch):
        reached.set()
        assert opened.wait(WAIT_SECONDS)
        return writer()(batch)

    async def leave() -> None:
        monkeypatch.setattr(recorder, "writer", lambda: slowly)
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
