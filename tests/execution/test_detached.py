"""A background call whose intent could not be recorded."""

import asyncio
from collections.abc import Callable

import pytest

from tests.execution.test_inline import called
from tools_app.audit.recorder import Recorder, RecorderGone
from tools_app.execution import doubts
from tools_app.transport import state


def test_a_call_that_was_refused_is_remembered_for_it_may_stand_in_the_database(
    transactional_db: None, key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("count")
    state.forget_everything()
    monkeypatch.setattr(doubts, "_noted", {})

    def gone(_recorder: Recorder, _entry: object) -> None:
        raise RecorderGone("away")

    monkeypatch.setattr(Recorder, "recording", gone)
    with pytest.raises(RecorderGone):
        asyncio.run(called(key, "count", n=1))
    assert len(doubts.noted()) == 1
    state.forget_everything()
