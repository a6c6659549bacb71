"""The experimental tasks of revision 2025-11-25, which the client requests."""

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from tests.wire.client import (
    MODERN,
    WAIT_SECONDS,
    Peer,
    RawClient,
    Stream,
    call_params,
    error_of,
    message_of,
)
from tests.wire.task_tools import ASKABLE, EXTENSION, Gate, accepted, error_for, get_task, result_of
from tools_app.calls import run
from tools_app.calls.background import start_task, task_state
from tools_app.core.database import run_in_db_thread
from tools_app.identity.principal import Principal
from tools_app.methods import tasks as methods
from tools_app.models import ApiKey, Call, CallAnswer, RunningCall, Tenant
from tools_app.runtime import housekeeping
from tools_app.tenants import keys
from tools_app.toolkit import ProtocolError, ToolContext, ToolError, tool
from tools_app.transport import delivery

VERSION = "2025-11-25"
OLDER = ("2024-11-05", "2025-03-26", "2025-06-18")
RELATED = "io.modelcontextprotocol/related-task"
METHODS = ("tasks/get", "tasks/result", "tasks/cancel")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses become streams soon."""
    monkeypatch.setattr(delivery, "STREAM_AFTER_SECONDS", 0.05)


@pytest.fixture
def session_peer(client: RawClient) -> Peer:
    """A client that requests tasks and supports elicitation."""
    return client.handshake(VERSION, ASKABLE)


def task_call(peer: Peer, tool: str, arguments: dict[str, Any] | None = None, ttl: Any = None, **meta: Any) -> Any:
    """The response to a call as a task."""
    task = {} if ttl is None else {"ttl": ttl}
    return message_of(peer.request("tools/call", call_params(tool, arguments, meta) | {"task": task}))


def create_task(peer: Peer, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> str:
    """The id of a new task."""
    created = task_call(peer, tool, arguments, **more)
    assert "result" in created, created
    return str(created["result"]["task"]["taskId"])


def task_ids(peer: Peer) -> list[str]:
    """The ids of all tasks in the list, from all of its pages."""
    ids: list[str] = []
    page = result_of(peer, "tasks/list", {})
    while True:
        ids += [task["taskId"] for task in page["tasks"]]
        if "nextCursor" not in page:
            return ids
        page = result_of(peer, "tasks/list", {"cursor": page["nextCursor"]})


# --- Agreeing on tasks --------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks.capability")
def test_only_this_revision_declares_tasks(client: RawClient) -> None:
    declared = client.initialize(VERSION).json()["result"]["capabilities"]
    assert declared["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    for version in OLDER:
        assert "tasks" not in client.initialize(version).json()["result"]["capabilities"]
    assert "tasks" not in message_of(client.modern("server/discover"))["result"]["capabilities"]


def test_only_this_revision_lists_which_tools_may_be_tasks(session: Peer, here: None) -> None:
    task_ids = {tool["name"]: tool.get("execution") for tool in result_of(session, "tools/list", {})["tools"]}
    if session.version == VERSION:
        assert task_ids["quick"] == {"taskSupport": "optional"}
        assert task_ids["must"] == {"taskSupport": "required"}
        assert task_ids.pop("never_task") in (None, {"taskSupport": "forbidden"})
    else:
        assert set(task_ids.values()) == {None}


@pytest.mark.shows("tasks.required")
def test_a_plain_call_of_a_tool_that_only_runs_as_a_task_is_refused_and_recorded(
    session_peer: Peer, here: None
) -> None:
    rejection = session_peer.call("must", {"word": "x"}, id="plain")
    assert error_of(rejection)["code"] == -32601
    assert "params.task" in error_of(rejection)["message"]
    call = Call.objects.get()
    assert (call.outcome, call.rpc_error, call.request_id) == ("rejected", -32601, '"plain"')


@pytest.mark.shows("tasks.forbidden")
def test_a_call_as_a_task_of_a_tool_that_never_is_one_is_refused(session_peer: Peer, here: None) -> None:
    rejection = task_call(session_peer, "never_task")
    assert rejection["error"]["code"] == -32601
    assert "cannot run as a task" in rejection["error"]["message"]
    assert Call.objects.get().outcome == "rejected"


@pytest.mark.shows("tasks.undeclared")
@pytest.mark.parametrize("version", OLDER)
def test_older_revisions_know_neither_the_parameter_nor_the_methods(
    client: RawClient, here: None, version: str
) -> None:
    peer = client.handshake(version)
    for task in ({}, {"ttl": "wrong"}, 5):
        answer = peer.request("tools/call", call_params("quick", {"word": "x"}) | {"task": task})
        assert message_of(answer)["result"]["content"][0]["text"] == "quick x"
    for method in ("tasks/get", "tasks/list", "tasks/result", "tasks/cancel"):
        assert error_for(peer, method, {"taskId": "x"})["code"] == -32601


@pytest.mark.shows("tasks.undeclared")
def test_requests_of_other_kinds_are_worked_on_as_ever(session_peer: Peer, here: None) -> None:
    assert result_of(session_peer, "ping", {"task": {"ttl": 5}}) == {}
    assert "tools" in result_of(session_peer, "tools/list", {"task": {}})


def test_an_invalid_task_parameter_is_rejected(session_peer: Peer, here: None) -> None:
    for task in (5, [], "x", *({"ttl": ttl} for ttl in ("x", True, -1, 0, 1e300))):
        rejection = session_peer.request("tools/call", call_params("quick", {"word": "x"}) | {"task": task})
        assert (error_of(rejection)["code"], error_of(rejection)["data"]) == (-32602, {"field": "task"}), task
    without_task = session_peer.request("tools/call", call_params("quick", {"word": "x"}) | {"task": None})
    assert message_of(without_task)["result"]["content"][0]["text"] == "quick x"


# --- The life of a task -------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks.created", "tasks.begins-working", "tasks.result-waits", "tasks.related")
def test_a_call_as_a_task_is_answered_at_once_and_its_result_waits_for_the_end(
    session_peer: Peer, tools: None, gate: Gate
) -> None:
    created = task_call(session_peer, "must_hold")["result"]
    assert set(created) == {"task"}
    task = created["task"]
    assert task["status"] == "working"
    gate.wait_for_tool()
    assert get_task(session_peer, task["taskId"])["status"] == "working"
    with session_peer.stream(
        "tasks/result", {"taskId": task["taskId"]}, id="wait", headers={"Accept": "text/event-stream"}
    ) as stream:
        gate.open()
        (answer,) = stream.read_to_end()
    assert answer["id"] == "wait"
    assert answer["result"] == {
        "content": [{"type": "text", "text": "held no more"}],
        "isError": False,
        "_meta": {RELATED: {"taskId": task["taskId"]}},
    }
    assert get_task(session_peer, task["taskId"])["status"] == "completed"


@pytest.mark.shows("tasks.begins-working")
def test_a_task_begins_as_working_even_if_it_ended_before_its_client_hears_of_it(
    session_peer: Peer, tools: None, monkeypatch: pytest.MonkeyPatch, in_state: Callable[..., Any]
) -> None:
    look_now = task_state.find

    async def look_late(id: uuid.UUID, principal: Principal) -> task_state.TaskState | None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not await run_in_db_thread(Call.objects.filter(pk=id).exists):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return await look_now(id, principal)

    with monkeypatch.context() as patched:
        patched.setattr(task_state, "find", look_late)
        task = task_call(session_peer, "must", {"word": "x"})["result"]["task"]
    assert (task["status"], task["lastUpdatedAt"]) == ("working", task["createdAt"])
    in_state(session_peer, task["taskId"], "completed")


@pytest.fixture
def either_way(registries: None, offer: Callable[..., object], background: bool) -> None:
    """Tools that may be called plainly or as a task, one for each outcome."""

    @tool(task="optional", background=background)
    def ends_well(number: int) -> dict[str, int]:
        return {"doubled": number * 2}

    @tool(task="optional", background=background)
    def ends_badly() -> str:
        raise ToolError("No luck today.")

    @tool(task="optional", background=background)
    def ends_in_an_error() -> str:
        raise ProtocolError("Not like this.", 4711, {"why": "a test"})

    offer("ends_well", "ends_badly", "ends_in_an_error")


@pytest.mark.shows("tasks.result", "tasks.related")
def test_the_result_is_what_the_plain_request_would_have_got(session_peer: Peer, either_way: None) -> None:
    for name, arguments in (("ends_well", {"number": 4}), ("ends_badly", {}), ("ends_in_an_error", {})):
        plain = message_of(session_peer.call(name, arguments))
        task = create_task(session_peer, name, arguments)
        for _ in range(2):
            answer = message_of(session_peer.request("tasks/result", {"taskId": task}))
            if "result" in plain:
                assert answer["result"] == {**plain["result"], "_meta": {RELATED: {"taskId": task}}}
            else:
                assert answer["error"] == plain["error"]


@pytest.mark.shows("tasks.failed")
def test_a_task_that_failed_says_why(session_peer: Peer, tools: None, in_state: Callable[..., Any]) -> None:
    for name, why in (("fails", "No luck today."), ("breaks", "Not like this.")):
        assert in_state(session_peer, create_task(session_peer, name), "failed")["statusMessage"] == why


@pytest.mark.shows("tasks.failed")
def test_a_task_whose_process_was_lost_has_failed(
    session_peer: Peer, here: None, gate: Gate, in_state: Callable[..., Any], settings: Any
) -> None:
    task = create_task(session_peer, "must_hold")
    gate.wait_for_tool()
    settings.MCPHUB_PROCESS_TIMEOUT = 0.1
    RunningCall.objects.update(owner=uuid.uuid4())
    done = in_state(session_peer, task, "failed")
    assert "was lost" in done["statusMessage"]
    assert error_for(session_peer, "tasks/result", {"taskId": task}) == {
        "code": -32603,
        "message": done["statusMessage"],
    }


@pytest.mark.shows("tasks.ids", "tasks.timestamps", "tasks.ttl", "tasks.no-needless-relation")
def test_whatever_shows_a_task_says_when_it_was_made_and_how_long_it_is_kept(
    session_peer: Peer, here: None, gate: Gate
) -> None:
    before = datetime.now(UTC)
    created = task_call(session_peer, "must_hold", ttl=1_800_000)["result"]["task"]
    other = create_task(session_peer, "must", {"word": "x"})
    assert isinstance(created["taskId"], str)
    assert created["taskId"] != other
    shown = get_task(session_peer, created["taskId"])
    (in_list,) = (
        one for one in result_of(session_peer, "tasks/list", {})["tasks"] if one["taskId"] == created["taskId"]
    )
    cancelled = result_of(session_peer, "tasks/cancel", {"taskId": created["taskId"]})
    for body in (created, shown, in_list, cancelled):
        assert body["ttl"] == 1_800_000
        created_at, updated_at = (datetime.fromisoformat(body[name]) for name in ("createdAt", "lastUpdatedAt"))
        assert before <= created_at <= updated_at <= datetime.now(UTC)
        assert body["createdAt"] == created["createdAt"]
        assert "_meta" not in body


@pytest.mark.shows("tasks.ttl", "tasks.limits")
def test_a_task_is_kept_as_long_as_it_is_wished_but_not_longer_than_the_hub_allows(
    session_peer: Peer, here: None, gate: Gate, settings: Any
) -> None:
    settings.MCPHUB_MAX_TASK_TTL = 3600
    for task, ttl in (
        ({}, 3_600_000),
        ({"ttl": None}, 3_600_000),
        ({"ttl": 10**12}, 3_600_000),
        ({"ttl": 900_000}, 900_000),
        ({"ttl": 5000.5}, 5000),
    ):
        created = message_of(session_peer.request("tools/call", call_params("must_hold") | {"task": task}))["result"][
            "task"
        ]
        assert created["ttl"] == get_task(session_peer, created["taskId"])["ttl"] == ttl


@pytest.mark.shows("tasks.limits")
def test_what_is_over_is_cleaned_up(session_peer: Peer, here: None, in_state: Callable[..., Any]) -> None:
    task = create_task(session_peer, "must", {"word": "x"})
    in_state(session_peer, task, "completed")
    CallAnswer.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    for method in METHODS:
        assert error_for(session_peer, method, {"taskId": task})["code"] == -32602
    assert task_ids(session_peer) == []
    housekeeping.drop_old_answers()
    assert not CallAnswer.objects.exists()


@pytest.mark.shows("tasks.poll-without-stream")
def test_tasks_get_and_list_are_answered_without_a_stream(session_peer: Peer, here: None, gate: Gate) -> None:
    task = create_task(session_peer, "must_hold")
    gate.wait_for_tool()
    for method in ("tasks/get", "tasks/list"):
        response = session_peer.request(method, {"taskId": task})
        assert response.headers["content-type"] == "application/json"


@pytest.mark.shows("tasks.parameter-decides")
def test_the_task_is_identified_by_the_parameter_only(
    session_peer: Peer, here: None, in_state: Callable[..., Any]
) -> None:
    one, other = (
        create_task(session_peer, "must", {"word": "one"}),
        create_task(session_peer, "must", {"word": "other"}),
    )
    meta = {"_meta": {RELATED: {"taskId": other}}}
    assert result_of(session_peer, "tasks/get", {"taskId": one, **meta})["taskId"] == one
    result = result_of(session_peer, "tasks/result", {"taskId": one, **meta})
    assert result["content"][0]["text"] == "must one"
    assert result["_meta"][RELATED] == {"taskId": one}
    in_state(session_peer, one, "completed")
    assert error_for(session_peer, "tasks/cancel", {"taskId": one, **meta})["data"] == {"taskId": one}


def test_a_task_is_one_record_with_its_requests_id(
    session_peer: Peer, tools: None, background: bool, tenant: Tenant
) -> None:
    created = message_of(
        session_peer.request("tools/call", call_params("must", {"word": "x"}) | {"task": {}}, id="r-9")
    )
    result_of(session_peer, "tasks/result", {"taskId": created["result"]["task"]["taskId"]})
    call = Call.objects.get()
    assert (call.method, call.request_id, call.outcome) == ("tools/call", '"r-9"', "ok")
    assert (call.background, call.tenant, call.protocol_version) == (background, tenant, VERSION)


@pytest.mark.shows("tasks.audit")
def test_making_ending_and_reading_a_task_leave_traces_that_name_key_and_tenant(
    session_peer: Peer, here: None, gate: Gate, tenant: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, methods.__name__)
    task = create_task(session_peer, "must_hold")
    row = RunningCall.objects.get()
    assert (row.tenant, row.api_key) == (tenant, ApiKey.objects.get())
    gate.open()
    result_of(session_peer, "tasks/result", {"taskId": task})
    call = Call.objects.get()
    assert (call.pk, call.tenant, call.api_key) == (row.pk, tenant, row.api_key)
    assert call.finished_at >= call.started_at
    (log_message,) = (record.getMessage() for record in caplog.records if record.name == methods.__name__)
    assert str(call.pk) in log_message
    assert str(row.api_key_id) in log_message
    assert tenant.slug in log_message


# --- Questions and progress ---------------------------------------------------------------------------------------


def question_on(stream: Stream) -> dict[str, Any]:
    message = stream.next()
    assert message["method"] == "elicitation/create", message
    return message


@pytest.mark.shows("tasks.input-required", "tasks.related-question", "tasks.related")
def test_a_question_moves_the_task_to_input_required_until_it_is_answered(
    session_peer: Peer,
    registries: None,
    offer: Callable[..., object],
    gate: Gate,
    background: bool,
    in_state: Callable[..., Any],
) -> None:
    @tool(task="required", background=background)
    async def asks_then_holds(context: ToolContext) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        name = (await context.elicit("Your name?", form)).content["name"]
        await gate.wait()
        return f"hello {name}"

    offer("asks_then_holds")
    task = create_task(session_peer, "asks_then_holds")
    waiting = in_state(session_peer, task, "input_required")
    assert datetime.fromisoformat(waiting["lastUpdatedAt"]) > datetime.fromisoformat(waiting["createdAt"])
    with session_peer.stream("tasks/result", {"taskId": task}) as stream:
        question = question_on(stream)
        assert question["params"]["_meta"] == {RELATED: {"taskId": task}}
        assert session_peer.respond(question["id"], accepted("Ada")).status_code == 202
        in_state(session_peer, task, "working")
        gate.open()
        (answer,) = stream.read_to_end()
    assert answer["result"]["content"][0]["text"] == "hello Ada"
    assert answer["result"]["_meta"] == {RELATED: {"taskId": task}}


def test_a_repeated_request_for_the_result_does_not_repeat_answered_elicitations(
    session_peer: Peer, here: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(session_peer, "asks_two")
    with session_peer.stream("tasks/result", {"taskId": task}) as stream:
        first, last = question_on(stream), question_on(stream)
        session_peer.respond(first["id"], accepted("Ada"))
    with session_peer.stream("tasks/result", {"taskId": task}) as stream:
        assert question_on(stream)["id"] == last["id"]
        session_peer.respond(last["id"], accepted("Byron"))
        (answer,) = stream.read_to_end()
    assert answer["result"]["content"][0]["text"] == "hello Ada Byron"


@pytest.fixture
def reporter(registries: None, offer: Callable[..., object], gate: Gate, background: bool) -> None:
    @tool(task="required", background=background)
    def reports(context: ToolContext) -> str:
        gate.hold(context)
        for step in range(5):
            context.progress(step, total=5)
        return "reported"

    offer("reports")


@pytest.mark.shows("progress.of-tasks", "progress.of-tasks-stops", "tasks.related")
def test_progress_has_the_token_of_the_request_that_created_the_task_and_ends_with_it(
    session_peer: Peer, reporter: None, gate: Gate
) -> None:
    task = create_task(session_peer, "reports", progressToken="mine")
    gate.wait_for_tool()
    with (
        session_peer.listening() as others,
        session_peer.stream("tasks/result", {"taskId": task}, headers={"Accept": "text/event-stream"}) as stream,
    ):
        gate.open()
        *steps, answer = stream.read_to_end()
        session_peer.delete()
        assert others.read_to_end() == []
    assert answer["result"]["content"][0]["text"] == "reported"
    assert [step["params"]["progress"] for step in steps] == list(range(5))
    for step in steps:
        assert step["method"] == "notifications/progress"
        assert step["params"]["progressToken"] == "mine"
        assert step["params"]["_meta"] == {RELATED: {"taskId": task}}


@pytest.mark.shows("progress.of-tasks-stops")
def test_a_request_for_the_result_after_the_end_gets_no_progress(
    session_peer: Peer, reporter: None, gate: Gate, in_state: Callable[..., Any]
) -> None:
    task = create_task(session_peer, "reports", progressToken="mine")
    gate.open()
    in_state(session_peer, task, "completed")
    response = session_peer.request("tasks/result", {"taskId": task})
    assert response.headers["content-type"] == "application/json"


# --- The list -----------------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks.list-pages", "tasks.list-cursor", "tasks.list-complete")
def test_the_list_comes_in_pages_and_holds_each_task_once_the_newest_first(
    session_peer: Peer, here: None, gate: Gate, monkeypatch: pytest.MonkeyPatch, in_state: Callable[..., Any]
) -> None:
    monkeypatch.setattr(methods, "PAGE", 3)
    ids = [
        create_task(session_peer, "must_hold" if number % 2 else "must", {} if number % 2 else {"word": "x"})
        for number in range(7)
    ]
    for task in ids[::2]:
        in_state(session_peer, task, "completed")
    page = result_of(session_peer, "tasks/list", {})
    assert len(page["tasks"]) == 3
    assert page["nextCursor"]
    assert task_ids(session_peer) == ids[::-1]
    for shown in page["tasks"]:
        assert get_task(session_peer, shown["taskId"]) == shown


@pytest.mark.shows("tasks.errors")
def test_a_cursor_that_the_hub_did_not_give_is_refused(session_peer: Peer) -> None:
    for cursor in ("", "x", 5, {}, "a:b:c", "é\x00", True):
        rejection = error_for(session_peer, "tasks/list", {"cursor": cursor})
        assert rejection["code"] == -32602, cursor
        assert "cursor" in rejection["message"]


def test_a_call_that_is_no_task_is_not_listed(session_peer: Peer, here: None) -> None:
    session_peer.result("quick", {"word": "x"})
    session_peer.result("never_task")
    assert task_ids(session_peer) == []


# --- Cancellation -------------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks.cancel", "tasks.no-needless-relation")
def test_a_cancelled_task_has_that_status_at_once_and_its_tool_is_stopped(
    session_peer: Peer, tools: None, gate: Gate
) -> None:
    task = create_task(session_peer, "must_hold")
    gate.wait_for_tool()
    cancelled = result_of(session_peer, "tasks/cancel", {"taskId": task})
    assert cancelled["status"] == "cancelled"
    assert cancelled == get_task(session_peer, task)
    gate.wait_for_stop()
    assert Call.objects.get().outcome == "cancelled"


def test_a_task_that_waits_for_its_client_can_be_cancelled(
    session_peer: Peer, tools: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(session_peer, "asks")
    in_state(session_peer, task, "input_required")
    assert result_of(session_peer, "tasks/cancel", {"taskId": task})["status"] == "cancelled"


@pytest.mark.shows("tasks.cancel-ended", "tasks.telling-errors", "tasks.transitions")
def test_a_task_that_is_over_cannot_be_cancelled(session_peer: Peer, here: None, in_state: Callable[..., Any]) -> None:
    for name, arguments, status in (
        ("must", {"word": "x"}, "completed"),
        ("fails", {}, "failed"),
        ("breaks", {}, "failed"),
    ):
        task = create_task(session_peer, name, arguments)
        done = in_state(session_peer, task, status)
        rejection = error_for(session_peer, "tasks/cancel", {"taskId": task})
        assert rejection == {
            "code": -32602,
            "message": f"The task has ended already: it is {status}.",
            "data": {"taskId": task},
        }
        assert get_task(session_peer, task) == done
    assert error_for(session_peer, "tasks/cancel", {"taskId": "no-such"})["message"] != rejection["message"]


@pytest.mark.shows("tasks.stays-cancelled", "tasks.transitions", "tasks.cancel-ended")
def test_a_task_stays_cancelled_even_if_its_tool_comes_to_its_end(
    session_peer: Peer, tools: None, gate: Gate, eventually: Callable[..., Any]
) -> None:
    task = create_task(session_peer, "stubborn")
    gate.wait_for_tool()
    cancelled = result_of(session_peer, "tasks/cancel", {"taskId": task})
    assert cancelled["status"] == "cancelled"
    gate.open()
    gate.wait_for_stop()
    eventually(lambda: not run.running_here())
    assert get_task(session_peer, task) == cancelled
    assert "already" in error_for(session_peer, "tasks/cancel", {"taskId": task})["message"]
    assert Call.objects.get().outcome == "cancelled"


def test_a_task_that_completes_before_its_cancellation_is_completed(
    session_peer: Peer, registries: None, offer: Callable[..., object], gate: Gate
) -> None:
    @tool(task="required")
    async def shrugs() -> str:
        gate.entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            running = asyncio.current_task()
            assert running is not None
            running.uncancel()
        return "ended all the same"

    offer("shrugs")
    task = create_task(session_peer, "shrugs")
    gate.wait_for_tool()
    rejection = error_for(session_peer, "tasks/cancel", {"taskId": task})
    assert (rejection["code"], rejection["message"]) == (-32602, "The task has ended already: it is completed.")


def test_the_notification_about_the_request_does_not_cancel_its_task(
    session_peer: Peer, tools: None, gate: Gate, in_state: Callable[..., Any]
) -> None:
    params = call_params("must_hold") | {"task": {}}
    created = message_of(session_peer.request("tools/call", params, id="r-1"))
    gate.wait_for_tool()
    assert session_peer.notify("notifications/cancelled", {"requestId": "r-1"}).status_code == 202
    gate.open()
    in_state(session_peer, created["result"]["task"]["taskId"], "completed")


def test_the_session_that_began_a_task_may_be_gone_before_its_end(
    client: RawClient, session_peer: Peer, tools: None, gate: Gate
) -> None:
    task = create_task(session_peer, "must_hold")
    gate.wait_for_tool()
    session_peer.delete()
    gate.open()
    result = result_of(client.handshake(VERSION), "tasks/result", {"taskId": task})
    assert result["content"][0]["text"] == "held no more"


# --- Who may ------------------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks.errors", "tasks.telling-errors")
@pytest.mark.parametrize("method", METHODS)
def test_a_task_that_does_not_exist_is_unknown(session_peer: Peer, method: str) -> None:
    for id in ("", "x", str(uuid.UUID(int=7)), "é\x00", "x" * 5000):
        assert error_for(session_peer, method, {"taskId": id}) == {
            "code": -32602,
            "message": "There is no such task, or it has expired.",
            "data": {"taskId": id},
        }


@pytest.mark.shows("tasks.errors")
@pytest.mark.parametrize("method", METHODS)
def test_an_id_that_is_no_text_is_refused(session_peer: Peer, method: str) -> None:
    for id in (None, 5, {}, ["x"]):
        assert error_for(session_peer, method, {"taskId": id})["data"] == {"field": "taskId"}


@pytest.mark.shows("tasks.bound")
@pytest.mark.parametrize("ended", [False, True])
def test_a_task_belongs_to_its_key(
    session_peer: Peer,
    here: None,
    gate: Gate,
    make_client: Callable[..., RawClient],
    other_key: str,
    tenant: Tenant,
    ended: bool,
    in_state: Callable[..., Any],
) -> None:
    task = create_task(session_peer, "must_hold")
    gate.wait_for_tool()
    if ended:
        gate.open()
        in_state(session_peer, task, "completed")
    for key in (other_key, keys.issue(tenant, "second")[1]):
        anonymous_peer = make_client(key).handshake(VERSION)
        for method in METHODS:
            assert (
                error_for(anonymous_peer, method, {"taskId": task})["message"]
                == "There is no such task, or it has expired."
            )
        assert task_ids(anonymous_peer) == []
    assert task_ids(session_peer) == [task]
    assert get_task(session_peer, task)["status"] == ("completed" if ended else "working")


@pytest.fixture
def anonymous_peer(tenant: Tenant, make_client: Callable[..., RawClient]) -> Peer:
    """A client without a key, at a public tenant."""
    tenant.is_public, tenant.public_tools = True, ["*"]
    tenant.save()
    return make_client(None, f"/t/{tenant.slug}/mcp").handshake(VERSION)


@pytest.mark.shows("tasks.unguessable")
def test_tasks_of_callers_without_a_key_are_not_listed_and_have_random_ids(anonymous_peer: Peer, here: None) -> None:
    declared = anonymous_peer.client.initialize(VERSION).json()["result"]["capabilities"]["tasks"]
    assert declared == {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert error_for(anonymous_peer, "tasks/list", {})["code"] == -32601
    task = create_task(anonymous_peer, "must", {"word": "x"})
    call, _, signature = task.rpartition(".")
    assert re.fullmatch(r"[\w-]{43}", signature)
    assert error_for(anonymous_peer, "tasks/get", {"taskId": call})["code"] == -32602
    assert result_of(anonymous_peer, "tasks/result", {"taskId": task})["content"][0]["text"] == "must x"


@pytest.mark.shows("tasks.bound")
def test_a_task_of_a_key_is_not_for_those_without_one(anonymous_peer: Peer, session_peer: Peer, here: None) -> None:
    of_key, without_key = (
        create_task(session_peer, "must", {"word": "x"}),
        create_task(anonymous_peer, "must", {"word": "y"}),
    )
    for method in METHODS:
        assert error_for(anonymous_peer, method, {"taskId": of_key})["code"] == -32602
        assert error_for(session_peer, method, {"taskId": without_key})["code"] == -32602
    assert task_ids(session_peer) == [of_key]


# --- Limits -------------------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks.rate-limit")
@pytest.mark.parametrize("method", [*METHODS, "tasks/list"])
def test_looks_are_limited_in_number(
    session_peer: Peer, client: RawClient, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(methods, "MAX_PER_MINUTE", 3)
    for _ in range(3):
        session_peer.request(method, {"taskId": "x"})
    over = session_peer.request(method, {"taskId": "x"})
    assert over.status_code == 429
    assert int(over.headers["retry-after"]) > 0
    modern = client.peer(MODERN, EXTENSION)
    assert modern.request("tasks/get", {"taskId": "x"}).status_code == 429
    assert modern.request("subscriptions/listen", {"notifications": {"taskIds": ["x"]}}).status_code == 429


@pytest.mark.shows("tasks.limits")
def test_how_many_tasks_a_caller_has_at_once_is_limited(
    session_peer: Peer,
    client: RawClient,
    here: None,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    make_client: Callable[..., RawClient],
    tenant: Tenant,
) -> None:
    monkeypatch.setattr(start_task, "MAX_TASKS", 2)
    going_on = [create_task(session_peer, "must_hold") for _ in range(2)]
    for rejection in (
        session_peer.request("tools/call", call_params("must_hold") | {"task": {}}, id="third"),
        client.peer(MODERN, EXTENSION).call("must_hold", id="third"),
    ):
        assert rejection.status_code == 429
        assert error_of(rejection)["message"] == "At most 2 tasks at once."
    assert list(Call.objects.values_list("outcome", "request_id")) == [("rejected", '"third"')] * 2
    assert session_peer.result("quick", {"word": "x"})["content"][0]["text"] == "quick x"
    create_task(make_client(keys.issue(tenant, "second")[1]).handshake(VERSION), "must_hold")
    result_of(session_peer, "tasks/cancel", {"taskId": going_on[0]})
    create_task(session_peer, "must_hold")


# --- Beside the extension -----------------------------------------------------------------------------------------


def test_the_result_of_a_task_of_the_modern_era_waits_for_its_answer_there(
    client: RawClient, session_peer: Peer, tools: None
) -> None:
    modern = client.peer(MODERN, EXTENSION | ASKABLE)
    task = message_of(modern.call("asks"))["result"]["taskId"]
    with session_peer.stream("tasks/result", {"taskId": task}, headers={"Accept": "text/event-stream"}) as stream:
        while get_task(modern, task)["status"] != "input_required":
            assert get_task(modern, task)["status"] == "working"
        result_of(modern, "tasks/update", {"taskId": task, "inputResponses": {"name": accepted("Ada")}})
        (answer,) = stream.read_to_end()
    assert answer["result"]["content"][0]["text"] == "hello Ada"
    assert json.dumps(answer).count(task) == 1
    assert task_ids(session_peer) == [task]


def test_changes_of_status_are_those_of_the_specification(
    session_peer: Peer, here: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(session_peer, "asks")
    statuses = [in_state(session_peer, task, "input_required")["status"]]
    with session_peer.stream("tasks/result", {"taskId": task}) as stream:
        session_peer.respond(question_on(stream)["id"], accepted("Ada"))
        while statuses[-1] not in {"completed", "failed", "cancelled"}:
            statuses.append(get_task(session_peer, task)["status"])
        stream.read_to_end()
    allowed = {
        ("input_required", "working"),
        ("input_required", "completed"),
        ("working", "completed"),
    }
    assert {pair for pair in pairwise(statuses) if pair[0] != pair[1]} <= allowed
