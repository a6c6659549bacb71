"""A background call whose intent could not be recorded."""

import asyncio
from collections.abc import Callable

import pytest

from tests.calls.test_inline import call_tool
from tools_app.audit.recorder.recorder import Recorder, RecorderUnavailable
from tools_app.calls import uncertain
from tools_app.transport import state


def test_a_call_that_was_refused_is_remembered_for_it_may_stand_in_the_database(
    transactional_db: None, key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("count")
    state.forget_everything()
    monkeypatch.setattr(uncertain, "not_started", uncertain.UncertainCalls())

    def gone(_recorder: Recorder, _entry: object) -> None:
        raise RecorderUnavailable("away")

    monkeypatch.setattr(Recorder, "recording", gone)
    with pytest.raises(RecorderUnavailable):
        asyncio.run(call_tool(key, "count", n=1))
    assert len(uncertain.not_started.noted()) == 1
    state.forget_everything()
