"""Timeouts of calls (lifecycle, §Timeouts)."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from pydantic import BaseModel, field_serializer

from tests.wire.client import WAIT_SECONDS, Peer, call_params
from tools_app.core.large_work import LARGE_BYTES
from tools_app.models import Call
from tools_app.toolkit import ToolContext, tool

SECONDS = 0.3
# A timer counts from the beginning of its event loop's iteration, so it can end a little early.
EARLIEST = 0.9 * SECONDS


@pytest.mark.shows("lifecycle.most-time")
@pytest.mark.parametrize("background", [False, True])
def test_a_tool_that_reports_progress_for_ever_ends_at_its_limit(
    peer: Peer, registries: None, offer: Callable[..., object], background: bool
) -> None:
    @tool(timeout=SECONDS, background=background)
    async def go_on(context: ToolContext) -> None:
        done = 0
        while True:
            done += 1
            context.progress(done)
            await asyncio.sleep(0.02)

    offer("go_on")
    with peer.stream("tools/call", call_params("go_on", meta={"progressToken": "t"})) as stream:
        *steps, last = stream.read_to_end()
    assert {step["method"] for step in steps} == {"notifications/progress"}
    assert last["result"]["isError"] is True
    assert f"did not finish within {SECONDS:g} seconds" in last["result"]["content"][0]["text"]
    call = Call.objects.get()
    assert call.outcome == "timeout"
    assert EARLIEST <= call.duration_us / 1_000_000 < WAIT_SECONDS


def test_the_limit_holds_for_work_on_a_large_result_which_is_done_in_a_thread(
    peer: Peer, registries: None, offer: Callable[..., object]
) -> None:
    threads, may_end = [], threading.Event()

    class Slow(BaseModel):
        text: str

        @field_serializer("text")
        def written(self, text: str) -> str:
            threads.append(threading.current_thread())
            may_end.wait(WAIT_SECONDS)
            return text

    @tool(timeout=SECONDS, read_only=True)
    async def large() -> Slow:
        threads.append(threading.current_thread())
        return Slow(text="x" * LARGE_BYTES)

    offer("large")
    try:
        result = peer.result("large")
        assert f"did not finish within {SECONDS:g} seconds" in result["content"][0]["text"]
        loop_thread, thread = threads
        assert thread is not loop_thread
    finally:
        may_end.set()
    assert Call.objects.get().outcome == "timeout"
