"""Every accepted request gets a response, however its call ends, and the record names who ended it.

The only exception is a request that its own client cancels (cancellation, §Behavior Requirements).
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.browsers import browser_of_admin
from tests.wire.channels import OPENERS, TRANSPORTS
from tests.wire.client import MODERN, WAIT_SECONDS, Peer, RawClient, call_params, message_of, rpc
from tests.wire.task_tools import EXTENSION, NAME_FORM
from tools_app.calls import run, sweeper
from tools_app.calls.background import queue
from tools_app.calls.invocation import CallRecordBuilder
from tools_app.core.large_work import LARGE_BYTES
from tools_app.models import ApiKey, Call, CallEvent, CallInput, Outcome, RunningCall, Session, Tenant, Tool
from tools_app.tenants import keys
from tools_app.toolkit import CallCancelled, ProtocolError, ToolContext, ToolError, tool
from tools_app.transport import delivery

pytestmark = pytest.mark.servers

Eventually = Callable[..., Any]
Cancel = Callable[[RunningCall], None]
HANDSHAKE = "2025-11-25"
ERAS = (HANDSHAKE, MODERN)
JSON, STREAM = "application/json", "text/event-stream"
LONG = 60.0


class UnexpectedError(BaseException):
    """A BaseException that no library expects."""


class UnprintableError(ToolError):
    def __str__(self) -> str:
        raise ValueError("no words")


RAISED = {
    "cancelled": asyncio.CancelledError,
    "call-cancelled": CallCancelled,
    "interrupt": KeyboardInterrupt,
    "exit": SystemExit,
    "odd": UnexpectedError,
    "unspeakable": UnprintableError,
    "surrogates": lambda: ToolError("broken \ud800"),
    "data": lambda: ProtocolError("no", 4711, object()),
    "large": lambda: ProtocolError("no", 4711, "x" * 2_000),
}


def create_error(kind: str) -> BaseException:
    error: BaseException = RAISED[kind]()
    return error


@pytest.fixture(autouse=True)
def tools(registries: None, offer: Callable[..., object]) -> None:
    @tool
    async def awaits() -> None:
        await asyncio.Event().wait()

    @tool
    def blocks(context: ToolContext) -> None:
        context.sleep(LONG)

    @tool(background=True)
    def works(context: ToolContext) -> None:
        context.progress(1)
        context.sleep(LONG)

    @tool(background=True)
    def waits_in_line(context: ToolContext) -> None:
        raise AssertionError("it was cancelled before it began")

    @tool
    async def asks(context: ToolContext) -> None:
        await context.elicit("Your name?", NAME_FORM)

    @tool(background=True, task="required")
    def is_a_task(context: ToolContext) -> None:
        context.sleep(LONG)

    @tool(background=True, task="required")
    async def is_an_asking_task(context: ToolContext) -> None:
        await context.elicit("Your name?", NAME_FORM)

    offer("awaits", "blocks", "works", "waits_in_line", "asks", "is_a_task", "is_an_asking_task")


@pytest.fixture
def failing_tools(registries: None, offer: Callable[..., object]) -> None:
    @tool
    async def raises(kind: str) -> None:
        raise create_error(kind)

    @tool
    def raises_in_a_thread(kind: str) -> None:
        raise create_error(kind)

    @tool
    async def keeps_an_object(context: ToolContext) -> None:
        context.state["kept"] = object()
        await context.elicit("Your name?", NAME_FORM)

    offer("raises", "raises_in_a_thread", "keeps_an_object")


@pytest.fixture
def admin(tenant: Tenant) -> Client:
    """A browser in which an admin of the tenant is logged in."""
    return browser_of_admin(tenant, "ada")


@pytest.fixture(params=["page", "rest"])
def cancel(request: pytest.FixtureRequest, admin: Client) -> Cancel:
    """Let an admin cancel a call, on the page and by the REST API."""

    def press(call: RunningCall) -> None:
        if request.param == "page":
            answer = admin.post(reverse("admin:tools_app_runningcall_cancel", args=[call.pk]))
            assert answer.status_code == 302
        else:
            answer = admin.post(f"/api/v1/running-calls/{call.pk}/cancel/")
            assert answer.status_code == 202, answer.content

    return press


@pytest.fixture
def expected_cause(cancel: Cancel, request: pytest.FixtureRequest) -> str:
    """The cause in the record of the cancelled call."""
    sources = {"page": "Admin pages", "rest": "REST API"}
    return f"cancelled by ada ({sources[request.node.callspec.params['cancel']]})"


@pytest.fixture
def in_background() -> Iterator[Callable[..., Future[Any]]]:
    """Run a function in a thread: `in_background(function, *arguments)`."""
    with ThreadPoolExecutor(4) as threads:
        yield threads.submit


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave calls in the queue."""
    monkeypatch.setattr(queue, "_enqueue", lambda *_: None)


def started_call(eventually: Eventually, name: str, status: str = "running") -> RunningCall:
    found: RunningCall = eventually(RunningCall.objects.filter(tool_name=name, status=status).first)
    if name == "works":  # a worker has the call somewhat before its tool begins
        eventually(CallEvent.objects.filter(call_id=found.pk).exists)
    return found


def recorded(eventually: Eventually) -> tuple[str, str]:
    call: Call = eventually(Call.objects.first)
    assert not RunningCall.objects.exists()
    eventually(lambda: not CallInput.objects.exists())
    return call.outcome, call.cause


def failure_in(message: dict[str, Any]) -> str:
    """The text of a result that is an error."""
    assert message["result"]["isError"] is True
    return str(message["result"]["content"][0]["text"])


BY_ADMIN = "The call was cancelled by an administrator of the hub."


# --- An admin cancels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(("name", "accept"), [("awaits", STREAM), ("blocks", JSON), ("works", JSON)])
def test_a_call_that_an_admin_cancels_is_answered_and_its_record_names_the_admin(
    client: RawClient,
    cancel: Cancel,
    expected_cause: str,
    in_background: Callable[..., Future[Any]],
    eventually: Eventually,
    version: str,
    name: str,
    accept: str,
) -> None:
    peer = client.peer(version)
    calling = in_background(peer.call, name, headers={"Accept": accept})
    cancel(started_call(eventually, name))
    answer = calling.result(WAIT_SECONDS)
    assert answer.headers["content-type"] == accept
    assert failure_in(message_of(answer)) == BY_ADMIN
    assert recorded(eventually) == ("cancelled", expected_cause)


@pytest.mark.usefixtures("no_worker")
@pytest.mark.parametrize("version", ERAS)
def test_a_call_that_no_worker_took_yet_is_answered_and_never_begins(
    client: RawClient,
    cancel: Cancel,
    expected_cause: str,
    in_background: Callable[..., Future[Any]],
    eventually: Eventually,
    version: str,
) -> None:
    calling = in_background(client.peer(version).call, "waits_in_line")
    cancel(started_call(eventually, "waits_in_line", "queued"))
    assert failure_in(message_of(calling.result(WAIT_SECONDS))) == BY_ADMIN
    assert recorded(eventually) == ("cancelled", expected_cause)
    assert Call.objects.get().waited_us is None


def test_a_call_that_waits_for_its_client_is_answered(
    client: RawClient, cancel: Cancel, expected_cause: str, eventually: Eventually
) -> None:
    session = client.handshake(HANDSHAKE, {"elicitation": {}})
    with session.stream("tools/call", call_params("asks")) as stream:
        assert stream.next()["method"] == "elicitation/create"
        cancel(started_call(eventually, "asks", "waiting"))
        cancelled, answer = stream.read_to_end()
    assert cancelled["method"] == "notifications/cancelled"
    assert failure_in(answer) == BY_ADMIN
    assert recorded(eventually) == ("cancelled", expected_cause)


def test_a_batch_is_answered_although_one_of_its_calls_was_cancelled(
    client: RawClient, cancel: Cancel, in_background: Callable[..., Future[Any]], eventually: Eventually
) -> None:
    session = client.handshake("2025-03-26")
    batch = [rpc("ping", id=1), rpc("tools/call", call_params("awaits"), id=2)]
    calling = in_background(client.post, batch, session.headers())
    cancel(started_call(eventually, "awaits"))
    answers = {message["id"]: message for message in message_of(calling.result(WAIT_SECONDS))}
    assert answers[1]["result"] == {}
    assert failure_in(answers[2]) == BY_ADMIN


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("version", "name"), [(HANDSHAKE, "works"), (MODERN, "awaits")])
def test_a_call_of_a_channel_is_answered(
    client: RawClient,
    cancel: Cancel,
    expected_cause: str,
    eventually: Eventually,
    transport: str,
    version: str,
    name: str,
) -> None:
    with OPENERS[transport](client) as channel:
        channel.negotiate(version).call(name, id="x")
        cancel(started_call(eventually, name))
        assert failure_in(channel.response("x")) == BY_ADMIN
        assert recorded(eventually) == ("cancelled", expected_cause)


def test_the_resumed_stream_of_a_cancelled_call_has_its_answer(
    client: RawClient, cancel: Cancel, eventually: Eventually
) -> None:
    session = client.handshake(HANDSHAKE)
    with session.stream("tools/call", call_params("works", {}, {"progressToken": 1}), id="x") as stream:
        last = next(iter(stream)).id
    cancel(started_call(eventually, "works"))
    recorded(eventually)
    with session.listening({"Last-Event-ID": last}) as stream:
        assert failure_in(stream.read_to_end()[-1]) == BY_ADMIN


def test_both_streams_of_one_call_bring_its_answer(client: RawClient, cancel: Cancel, eventually: Eventually) -> None:
    session = client.handshake(HANDSHAKE)
    with session.stream("tools/call", call_params("works", {}, {"progressToken": 1}), id="x") as stream:
        last = next(iter(stream)).id
        with session.listening({"Last-Event-ID": last}) as resumed:
            cancel(started_call(eventually, "works"))
            assert failure_in(resumed.read_to_end()[-1]) == BY_ADMIN
        assert failure_in(stream.read_to_end()[-1]) == BY_ADMIN


# --- Tasks ------------------------------------------------------------------------------------------------------


def test_the_result_of_a_task_that_an_admin_cancelled_says_so(
    client: RawClient,
    cancel: Cancel,
    expected_cause: str,
    in_background: Callable[..., Future[Any]],
    eventually: Eventually,
) -> None:
    session = client.handshake(HANDSHAKE)
    task = begin_task(session, "is_a_task")
    waiting = in_background(session.request, "tasks/result", {"taskId": task})
    cancel(started_call(eventually, "is_a_task"))
    assert failure_in(message_of(waiting.result(WAIT_SECONDS))) == BY_ADMIN
    assert message_of(session.request("tasks/get", {"taskId": task}))["result"]["status"] == "cancelled"
    assert recorded(eventually) == ("cancelled", expected_cause)


def test_the_record_of_a_task_that_its_client_cancels_says_so(
    client: RawClient, in_background: Callable[..., Future[Any]], eventually: Eventually
) -> None:
    session = client.handshake(HANDSHAKE)
    task = begin_task(session, "is_a_task")
    started_call(eventually, "is_a_task")
    waiting = in_background(session.request, "tasks/result", {"taskId": task})
    assert message_of(session.request("tasks/cancel", {"taskId": task}))["result"]["status"] == "cancelled"
    assert failure_in(message_of(waiting.result(WAIT_SECONDS))) == "The call was cancelled."
    assert recorded(eventually) == ("cancelled", "cancelled by its client: tasks/cancel")


@pytest.mark.parametrize(("name", "status"), [("is_a_task", "running"), ("is_an_asking_task", "waiting")])
def test_the_record_of_a_task_of_the_modern_era_that_its_client_cancels_says_so(
    client: RawClient, eventually: Eventually, name: str, status: str
) -> None:
    peer = client.peer(MODERN, {**EXTENSION, "elicitation": {}})
    task = message_of(peer.call(name))["result"]["taskId"]
    started_call(eventually, name, status)
    assert "result" in message_of(peer.request("tasks/cancel", {"taskId": task}))
    assert recorded(eventually) == ("cancelled", "cancelled by its client: tasks/cancel")
    assert message_of(peer.request("tasks/get", {"taskId": task}))["result"]["status"] == "cancelled"


def begin_task(session: Peer, name: str) -> str:
    params = call_params(name) | {"task": {}}
    return str(message_of(session.request("tools/call", params))["result"]["task"]["taskId"])


# --- The client gives its request up ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["awaits", "works"])
def test_the_record_of_a_request_that_its_client_closed_says_so(
    client: RawClient, eventually: Eventually, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "STREAM_AFTER_SECONDS", 0.05)
    with client.peer(MODERN).stream("tools/call", call_params(name)):
        started_call(eventually, name)
    assert recorded(eventually) == ("cancelled", "the client closed the request")


def test_a_client_that_leaves_while_a_large_result_is_recorded_changes_nothing(
    client: RawClient, offer: Callable[..., object], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "STREAM_AFTER_SECONDS", 0.05)
    is_recorded, may_end = threading.Event(), threading.Event()
    finished = CallRecordBuilder.finished

    def slowly_finished(*args: Any, **options: Any) -> Any:
        is_recorded.set()
        may_end.wait(WAIT_SECONDS)
        return finished(*args, **options)

    monkeypatch.setattr(CallRecordBuilder, "finished", slowly_finished)
    offer("echo")
    with client.peer(MODERN).stream("tools/call", call_params("echo", {"message": "x" * 2 * LARGE_BYTES})):
        assert is_recorded.wait(WAIT_SECONDS)
    eventually(lambda: [call.stopped_as for call in run.running_here()] == [Outcome.CANCELLED])
    may_end.set()
    assert eventually(Call.objects.first).outcome == "ok"
    assert eventually(lambda: not run.running_here())


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", ["awaits", "works"])
def test_the_record_of_a_call_whose_connection_was_closed_says_so(
    client: RawClient, eventually: Eventually, transport: str, name: str
) -> None:
    with OPENERS[transport](client) as channel:
        channel.negotiate(HANDSHAKE).call(name)
        started_call(eventually, name)
    assert recorded(eventually) == ("cancelled", "the client closed its connection")


# --- The session, the key, the tenant or the tool goes ------------------------------------------------------------


def end_session(admin: Client) -> None:
    session = Session.objects.get(ended_at=None)
    assert admin.post(reverse("admin:tools_app_session_end", args=[session.pk])).status_code == 302


def revoke_key(admin: Client) -> None:
    keys.revoke(ApiKey.objects.get())


def deactivate_tenant(admin: Client) -> None:
    tenant = Tenant.objects.get()
    tenant.is_active = False
    tenant.save()


def disable_tool(admin: Client) -> None:
    for row in Tool.objects.all():
        row.enabled = False
        row.save()


def delete_tool(admin: Client) -> None:
    Tool.objects.all().delete()


GONE = [end_session, revoke_key, deactivate_tenant]


@pytest.mark.parametrize(("transport", "name"), [("sse", "works"), ("ws", "awaits")])
@pytest.mark.parametrize("go", GONE)
def test_a_call_on_a_channel_that_the_hub_closes_is_answered_and_the_record_says_why(
    client: RawClient,
    admin: Client,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    transport: str,
    name: str,
    go: Callable[[Client], None],
) -> None:
    monkeypatch.setattr("tools_app.transport.connection.FINISH_SECONDS", 0.1)
    with OPENERS[transport](client) as channel:
        channel.negotiate(HANDSHAKE).call(name, id="x")
        started_call(eventually, name)
        go(admin)
        failure_text = failure_in(channel.response("x"))
    if go is end_session:
        assert failure_text == "The call was cancelled: its session was ended."
        assert recorded(eventually) == ("cancelled", "its session was ended")
    else:
        assert failure_text == "The call was cancelled: the API key is no longer valid."
        assert recorded(eventually)[1].startswith("its API key was revoked, expired or")


@pytest.mark.parametrize("go", [*GONE, disable_tool, delete_tool])
@pytest.mark.parametrize("version", ERAS)
def test_a_call_over_http_that_was_taken_goes_on_to_its_answer(
    client: RawClient,
    admin: Client,
    in_background: Callable[..., Future[Any]],
    eventually: Eventually,
    registries: None,
    offer: Callable[..., object],
    version: str,
    go: Callable[[Client], None],
) -> None:
    gate = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    @tool
    async def goes_on() -> str:
        loops.append(asyncio.get_running_loop())
        await gate.wait()
        return "done"

    offer("goes_on")
    if go is end_session and version == MODERN:
        client.handshake(HANDSHAKE)
    calling = in_background(client.peer(version).call, "goes_on")
    started_call(eventually, "goes_on")
    go(admin)
    eventually(lambda: loops)[0].call_soon_threadsafe(gate.set)
    assert message_of(calling.result(WAIT_SECONDS))["result"]["content"][0]["text"] == "done"
    assert recorded(eventually) == ("ok", "")


# --- The tool does not stop -------------------------------------------------------------------------------------


@pytest.fixture
def deaf(registries: None, offer: Callable[..., object]) -> Iterator[threading.Event]:
    """A tool that goes on whatever is raised in it, until the event that this gives is set."""
    enough = threading.Event()

    @tool(timeout=30.0)
    async def never_stops() -> None:
        while not enough.is_set():
            with suppress(BaseException):
                await asyncio.sleep(0.05)

    offer("never_stops")
    yield enough
    enough.set()


@pytest.mark.parametrize("way", [pytest.param("json", marks=pytest.mark.slow), "stream", "ws"])
def test_a_call_whose_tool_ignores_its_cancellation_is_answered_all_the_same(
    client: RawClient,
    cancel: Cancel,
    expected_cause: str,
    in_background: Callable[..., Future[Any]],
    eventually: Eventually,
    deaf: threading.Event,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeper, "CANCEL_SECONDS", 0.1)
    monkeypatch.setattr(delivery, "STREAM_AFTER_SECONDS", 0.1)

    def ask() -> Any:
        if way != "ws":
            accept = JSON if way == "json" else f"{JSON}, {STREAM}"
            return message_of(client.peer(HANDSHAKE).call("never_stops", headers={"Accept": accept}))
        with OPENERS["ws"](client) as channel:
            return channel.negotiate(MODERN).tool_response("never_stops")

    calling = in_background(ask)
    cancel(started_call(eventually, "never_stops"))
    assert failure_in(calling.result(WAIT_SECONDS)) == BY_ADMIN
    assert recorded(eventually) == ("cancelled", f"{expected_cause}; the tool did not stop")
    deaf.set()
    eventually(lambda: not run.running_here())
    assert Call.objects.count() == 1


# --- What a tool raises -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("failing_tools")
@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize(("name", "version"), [("raises", HANDSHAKE), ("raises_in_a_thread", MODERN)])
def test_whatever_a_tool_raises_is_answered_and_recorded(
    client: RawClient, eventually: Eventually, settings: Any, version: str, name: str, kind: str
) -> None:
    settings.MCPHUB_MAX_RESULT_BYTES = 1_000
    peer = client.peer(version)
    failure_in(message_of(peer.call(name, {"kind": kind})))
    outcome, cause = recorded(eventually)
    assert outcome in ("tool_error", "cancelled")
    assert cause or kind == "surrogates"


@pytest.mark.usefixtures("failing_tools")
def test_a_tool_whose_state_is_not_json_is_answered_and_recorded(client: RawClient, eventually: Eventually) -> None:
    failure_in(message_of(client.peer(MODERN, {"elicitation": {}}).call("keeps_an_object")))
    assert recorded(eventually)[0] == "tool_error"
