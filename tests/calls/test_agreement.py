"""The response to a call and its record agree, whatever fails in between."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError
from django.utils import timezone

from tests.calls.test_inline import call_tool
from tests.wire.client import MODERN, RawClient, text_of
from tools_app.audit.recorder.entries import CallFinished, CallStarted, Entry
from tools_app.audit.recorder.recorder import Recorder, RecorderUnavailable
from tools_app.audit.verification.verify import Scope, verify
from tools_app.calls import events as store
from tools_app.calls import inline as inline_calls
from tools_app.calls import inputs, run, sweeper, uncertain
from tools_app.calls.background import claims, queue, worker
from tools_app.calls.background.broker import BrokerUnavailable
from tools_app.calls.background.payload import CallPayload
from tools_app.calls.invocation import End, Round
from tools_app.calls.outcomes import UNRECORDED, unanswered
from tools_app.calls.sweeper import Sweeper
from tools_app.core.ids import new_id
from tools_app.models import Call, CallEvent, CallStatus, Outcome, RunningCall, Tenant
from tools_app.protocol.errors import RpcError
from tools_app.server.embedded import EmbeddedHub
from tools_app.toolkit import tool
from tools_app.transport import state
from tools_app.transport.responses import ResponseBuffer

pytestmark = pytest.mark.usefixtures("registries")
WAIT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def fresh(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(uncertain, "not_started", uncertain.UncertainCalls())
    monkeypatch.setattr(uncertain, "may_have_run", uncertain.UncertainCalls())
    state.forget_everything()
    yield
    state.forget_everything()


@pytest.fixture
def runs_of_change(offer: Callable[..., object]) -> list[str]:
    """The words of the runs of the tool `change`."""
    done: list[str] = []

    @tool
    async def change(word: str) -> str:
        done.append(word)
        return word

    offer("change")
    return done


def confirm_too_late(monkeypatch: pytest.MonkeyPatch, kind: type[Entry]) -> None:
    """Write entries of one kind, while their submitters get the error that they were not written."""
    recording = Recorder.recording

    def fail_but_submit(
        self: Recorder, entry: Entry, loop: asyncio.AbstractEventLoop | None = None
    ) -> asyncio.Future[bool]:
        if not isinstance(entry, kind):
            return recording(self, entry, loop)
        self.submit(entry)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter.set_exception(RecorderUnavailable("the database does not answer"))
        return waiter

    monkeypatch.setattr(Recorder, "recording", fail_but_submit)


def create_queued_call(tenant: Tenant, **more: Any) -> RunningCall:
    columns = {"status": CallStatus.QUEUED, "background": True, "owner": new_id(), "timeout_seconds": 60.0, **more}
    return RunningCall.objects.create(tenant=tenant, tool_name="change", started_at=timezone.now(), **columns)


# --- "Nothing ran" --------------------------------------------------------------------------------------------


def test_a_call_whose_intent_was_confirmed_too_late_does_not_run_and_is_recorded_as_not_started(
    key: str, runs_of_change: list[str], monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    confirm_too_late(monkeypatch, CallStarted)
    with pytest.raises(RecorderUnavailable):
        asyncio.run(call_tool(key, "change", word="x"))
    assert eventually(RunningCall.objects.exists)
    Sweeper().sweep()
    assert runs_of_change == []
    assert Call.objects.get().outcome == Outcome.NOT_STARTED


def test_a_call_that_a_worker_took_though_the_broker_did_not_answer_is_followed_to_its_end(
    hub: EmbeddedHub, key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("count")
    enqueue = queue.aenqueue

    async def enqueue_and_fail(call_id: Any, tenant_id: Any) -> None:
        await enqueue(call_id, tenant_id)
        still_queued = RunningCall.objects.filter(pk=call_id, status=CallStatus.QUEUED)
        async with asyncio.timeout(WAIT_SECONDS):
            while await asyncio.to_thread(still_queued.exists):
                pass
        raise BrokerUnavailable("no answer within 2 seconds")

    monkeypatch.setattr(queue, "aenqueue", enqueue_and_fail)
    client = RawClient(hub.url, key)
    with client.http:
        assert text_of(client.peer(MODERN).call("count", {"n": 3})) == "3"
    assert Call.objects.get().outcome == Outcome.OK


def test_a_call_that_was_taken_in_the_last_moment_is_not_settled_as_not_started(tenant: Tenant) -> None:
    row = create_queued_call(tenant)
    RunningCall.objects.update(status=CallStatus.RUNNING)
    assert sweeper.settle(row, End(Outcome.NOT_STARTED)) is False
    assert RunningCall.objects.filter(pk=row.pk).exists()
    assert not Call.objects.exists()


def test_a_call_that_no_worker_took_is_recorded_as_not_started(tenant: Tenant, settings: Any) -> None:
    settings.MCPHUB_QUEUE_TIMEOUT = -1.0
    create_queued_call(tenant)
    Sweeper().sweep()
    call = Call.objects.get()
    assert (call.outcome, call.cause) == (Outcome.NOT_STARTED, "no worker took it within -1 seconds")


@pytest.mark.parametrize(("status", "outcome"), [("queued", Outcome.NOT_STARTED), ("running", Outcome.LOST)])
def test_a_call_of_a_process_that_died_is_lost_only_if_it_had_started(
    tenant: Tenant, settings: Any, status: str, outcome: Outcome
) -> None:
    settings.MCPHUB_PROCESS_TIMEOUT = -1.0
    create_queued_call(tenant, status=status)
    Sweeper().sweep()
    assert Call.objects.get().outcome == outcome


def test_a_worker_that_loses_the_database_while_it_takes_a_call_does_not_start_it(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, claim = create_queued_call(tenant), claims.claim_all

    def claim_and_fail(call_ids: Any) -> None:
        claim(call_ids)
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(claims, "claim_all", claim_and_fail)
    monkeypatch.setattr(claims, "payload_of_row", lambda _row: CallPayload({}, {}, None, Round()))
    with pytest.raises(OperationalError):
        worker.run_claimed(row.pk)
    Sweeper().sweep()
    assert Call.objects.get().outcome == Outcome.NOT_STARTED


def test_a_call_that_is_not_taken_goes_on_waiting_though_a_worker_lost_the_database(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_call_ids: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(claims, "claim_all", fail)
    row = create_queued_call(tenant)
    with pytest.raises(OperationalError):
        worker.run_claimed(row.pk)
    Sweeper().sweep()
    assert RunningCall.objects.filter(pk=row.pk).exists()


# --- "It may have run" ----------------------------------------------------------------------------------------


def test_a_record_that_was_confirmed_too_late_has_the_answer_of_its_client(
    key: str, runs_of_change: list[str], monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    confirm_too_late(monkeypatch, CallFinished)
    with pytest.raises(RpcError, match="It may have run"):
        asyncio.run(call_tool(key, "change", word="x"))
    assert eventually(Call.objects.exists)
    Sweeper().sweep()
    Sweeper().sweep()
    assert runs_of_change == ["x"]
    assert eventually(CallEvent.objects.exists)
    assert Call.objects.get().outcome == Outcome.OK
    event = CallEvent.objects.get()
    assert (event.kind, event.sequence) == ("answer", 1)
    assert UNRECORDED in event.data


def test_the_recorded_answer_of_a_client_breaks_no_hash(
    key: str, runs_of_change: list[str], monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    confirm_too_late(monkeypatch, CallFinished)
    with pytest.raises(RpcError):
        asyncio.run(call_tool(key, "change", word="x"))
    assert eventually(Call.objects.exists)
    Sweeper().sweep()
    assert eventually(CallEvent.objects.exists)
    assert verify(Scope()).findings == []


def test_a_call_that_another_process_settled_is_answered_as_its_record_says(
    key: str, offer: Callable[..., object]
) -> None:
    @tool
    async def slow() -> str:
        await asyncio.to_thread(lambda: sweeper.settle(RunningCall.objects.get(), End(Outcome.TIMEOUT, is_error=True)))
        return "done"

    offer("slow")
    result = asyncio.run(call_tool(key, "slow"))
    assert (result["isError"], Call.objects.get().outcome) == (True, Outcome.TIMEOUT)
    assert "took too long" in result["content"][0]["text"]


def test_a_settled_call_whose_tool_goes_on_is_answered_when_the_database_is_back(
    key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    senders: list[ResponseBuffer] = []
    outages = [OperationalError("connection refused")]
    real = store.recorded_outcome

    def fail_once(call_id: UUID) -> object:
        if outages:
            raise outages.pop()
        return real(call_id)

    @tool
    async def slow() -> str:
        call = run.running_here()[0]
        await asyncio.to_thread(lambda: sweeper.settle(RunningCall.objects.get(), End(Outcome.TIMEOUT, is_error=True)))
        for done in (lambda: not outages and not inline_calls._settlement_tasks, lambda: senders[0].has_responded):
            call.settled_elsewhere()
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.sleep(0)
                while not done():  # noqa: ASYNC110 - the answer comes from another task
                    await asyncio.sleep(0.01)
        return "done"

    monkeypatch.setattr(store, "recorded_outcome", fail_once)

    async def send() -> None:
        senders.append(ResponseBuffer(asyncio.get_running_loop()))
        await call_tool(key, "slow", sender=senders[0])

    offer("slow")
    asyncio.run(send())
    assert b"took too long" in (senders[0].answer or b"")


def test_a_database_that_goes_away_after_the_record_does_not_unsay_it(
    key: str, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    async def asks() -> str:
        run.running_here()[0].has_asked = True
        return "done"

    def fail(_call_id: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(inputs, "forget", fail)
    offer("asks")
    assert asyncio.run(call_tool(key, "asks"))["content"][0]["text"] == "done"
    assert Call.objects.get().outcome == Outcome.OK


def test_a_call_whose_answer_is_no_longer_kept_is_not_called_lost() -> None:
    outcome = unanswered(Outcome.OK, "change")
    assert outcome.outcome == Outcome.OK
    assert b"no longer stored" in outcome.wire
