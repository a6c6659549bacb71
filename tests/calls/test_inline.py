"""Calls that run in the web process."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import orjson
import pytest

from tools_app.audit.recorder.entries import CallEventEntry
from tools_app.audit.recorder.recorder import Recorder, _Item
from tools_app.calls import inline, pipeline, run
from tools_app.calls.background.start_task import TaskRequest
from tools_app.calls.inline import InlineCall
from tools_app.calls.invocation import CallRecordBuilder
from tools_app.calls.request import Cancelled, modern_context
from tools_app.calls.stop_reasons import cancelled_by_client
from tools_app.calls.sweeper import Sweeper
from tools_app.catalog.tool_api.results import CallCancelled
from tools_app.core.notifications.listener import TopicListener
from tools_app.identity.principal import Credential, authenticate
from tools_app.models import Call, CallStatus, Outcome
from tools_app.protocol.inbound import Modern
from tools_app.protocol.jsonrpc import Request
from tools_app.toolkit import ToolContext, tool
from tools_app.transport import state
from tools_app.transport.responses import ResponseBuffer

WAIT_SECONDS = 30.0


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


async def call_tool(
    key: str,
    tool: str,
    *,
    task_request: TaskRequest = TaskRequest.NO_EXTENSION,
    sender: ResponseBuffer | None = None,
    **arguments: object,
) -> Any:
    """Return the result of a `tools/call` of the modern era. `sender` gets the messages to its client."""
    principal = await authenticate(Credential(key))
    assert principal is not None
    context = modern_context(
        Request("1", "tools/call", {"name": tool, "arguments": arguments}),
        Modern("2026-07-28", {}, {}),
        principal,
        address="::1",
        listener=TopicListener(),
        sender=sender or ResponseBuffer(asyncio.get_running_loop()),
    )
    result = await pipeline.call_tool(context, tool, arguments, task_request=task_request, task_seconds=60.0)
    assert isinstance(result, bytes)
    return orjson.loads(result)


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

    assert asyncio.run(call_tool(key, "echo", message="x"))["content"][0]["text"] == "hello x"

    assert [call() for call in ran] == [None]


def before_the_intent_is_durable(monkeypatch: pytest.MonkeyPatch, act: Callable[[InlineCall], Awaitable[None]]) -> None:
    """Let `act` happen while the intent of a call waits for its commit."""
    write = InlineCall.write_intent

    async def slow(call: InlineCall) -> None:
        call.builder.started(CallStatus.RUNNING, call.tool.timeout_seconds)
        await act(call)
        await write(call)

    monkeypatch.setattr(InlineCall, "write_intent", slow)


@pytest.mark.usefixtures("registries")
def test_a_call_that_is_cancelled_before_its_intent_is_durable_does_not_run(
    key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    @tool
    def order() -> None:
        ran.append(True)

    async def cancel(call: InlineCall) -> None:
        assert run.stop_call(call.id, cancelled_by_client("changed my mind"))

    before_the_intent_is_durable(monkeypatch, cancel)
    offer("order")
    with pytest.raises(Cancelled):
        asyncio.run(call_tool(key, "order"))
    record = Call.objects.get()
    assert (record.outcome, ran) == (Outcome.CANCELLED, [])
    assert "changed my mind" in record.cause


@pytest.mark.usefixtures("registries")
def test_a_call_that_is_stopped_as_it_gives_up_its_questions_is_answered(
    key: str, offer: Callable[..., object]
) -> None:
    @tool(read_only=True)
    async def ask(ctx: ToolContext) -> None:
        asked = asyncio.Event()

        async def unanswered() -> None:
            asked.set()
            await asyncio.Event().wait()

        waiting = asyncio.create_task(asyncio.to_thread(ctx.wait_for, unanswered()))
        waiting.add_done_callback(lambda task: task.exception())
        await asked.wait()
        run.running_here()[0].stop(Outcome.CANCELLED, cancelled_by_client("changed my mind"))
        # As a report of progress does that comes before the cancellation.
        raise CallCancelled

    offer("ask")
    with pytest.raises(Cancelled):
        asyncio.run(call_tool(key, "ask"))
    assert "changed my mind" in Call.objects.get().cause


@pytest.mark.usefixtures("registries")
def test_a_call_whose_intent_waits_for_its_commit_is_not_taken_for_settled(
    key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    has_responded: list[bool] = []

    @tool
    def order() -> str:
        return "done"

    async def sweep_twice(call: InlineCall) -> None:
        sweeper = Sweeper()
        for _ in range(2):
            await asyncio.to_thread(sweeper.sweep)
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.sleep(0)
            await asyncio.gather(*(task for task in inline._settlement_tasks if task))
        sender = call.context.sender
        assert isinstance(sender, ResponseBuffer)
        has_responded.append(sender.has_responded)

    before_the_intent_is_durable(monkeypatch, sweep_twice)
    offer("order")
    assert asyncio.run(call_tool(key, "order"))["isError"] is False
    assert (Call.objects.get().outcome, has_responded) == (Outcome.OK, [False])


@pytest.mark.usefixtures("registries")
def test_events_of_several_threads_are_recorded_in_their_order(
    key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    order, second_queued = [], threading.Event()
    put, number = Recorder._put, CallRecordBuilder.event

    def put_in_order(recorder: Recorder, item: _Item) -> None:
        put(recorder, item)
        if isinstance(item.entry, CallEventEntry):
            order.append(item.entry.row.sequence)
            if item.entry.row.sequence == 2:
                second_queued.set()

    def number_slowly(builder: CallRecordBuilder, *args: Any) -> CallEventEntry:
        """Number an event, and return the first once the second is queued, or waits for this one."""
        entry = number(builder, *args)
        if entry.row.sequence == 1:
            second_queued.wait(0.3)
        return entry

    @tool
    def report(ctx: ToolContext) -> None:
        with ThreadPoolExecutor(2) as threads:
            for reported in [threads.submit(ctx.log, "info", step) for step in (1, 2)]:
                reported.result()

    monkeypatch.setattr(Recorder, "_put", put_in_order)
    monkeypatch.setattr(CallRecordBuilder, "event", number_slowly)
    offer("report")
    assert asyncio.run(call_tool(key, "report"))["isError"] is False
    assert order == [1, 2]
