"""The extension io.modelcontextprotocol/tasks of the modern era (SEP-2663)."""

import base64
import re
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.wire.client import (
    HANDSHAKES,
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
from tools_app.calls.background import start_task
from tools_app.models import Call, CallAnswer, CallEvent, CallStatus, Membership, Role, RunningCall, Tenant
from tools_app.runtime import housekeeping
from tools_app.tenants import keys
from tools_app.toolkit import ToolContext, tool

MANY = 12


@pytest.fixture(autouse=True)
def tasks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls become tasks after a moment."""
    monkeypatch.setattr(start_task, "TASK_AFTER_SECONDS", 0.1)


@pytest.fixture
def tasks_never(tasks_soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call becomes a task because the machine is slow."""
    monkeypatch.setattr(start_task, "TASK_AFTER_SECONDS", WAIT_SECONDS)


@pytest.fixture
def tasker(client: RawClient) -> Peer:
    """A client that supports tasks and elicitation."""
    return client.peer(MODERN, EXTENSION | ASKABLE)


def create_task(peer: Peer, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> str:
    """The id of the task that a call became."""
    created = message_of(peer.call(tool, arguments, **more))
    assert created["result"]["resultType"] == "task", created
    return str(created["result"]["taskId"])


# --- What becomes a task ------------------------------------------------------------------------------------------


def test_a_quick_call_is_answered_directly_and_was_never_a_task(
    tasker: Peer, tools: None, client: RawClient, tasks_never: None
) -> None:
    result = tasker.result("quick", {"word": "fox"})
    assert (result["resultType"], result["content"]) == ("complete", [{"type": "text", "text": "quick fox"}])
    assert result_of(client.handshake(), "tasks/list", {}) == {"tasks": []}


@pytest.mark.shows("tasks-extension.result-type", "tasks-extension.durable", "tasks-extension.get")
def test_a_call_that_takes_long_becomes_a_task_and_its_result_is_there_later(
    tasker: Peer, tools: None, gate: Gate, in_state: Callable[..., Any], settings: Any
) -> None:
    created = message_of(tasker.call("held", id="r-1"))
    task = created["result"]
    assert (created["id"], task["resultType"], task["status"]) == ("r-1", "task", "working")
    assert task["ttlMs"] == settings.MCPHUB_MAX_TASK_TTL * 1000
    assert task["pollIntervalMs"] > 0
    polled = get_task(tasker, task["taskId"])
    assert polled["resultType"] == "complete"
    gate.wait_for_tool()
    assert get_task(tasker, task["taskId"])["statusMessage"] == "Half way"
    gate.open()
    done = in_state(tasker, task["taskId"], "completed")
    assert done["result"] == {"content": [{"type": "text", "text": "held no more"}], "isError": False}
    assert datetime.fromisoformat(done["createdAt"]) <= datetime.fromisoformat(done["lastUpdatedAt"])


def test_a_tool_that_never_is_a_task_takes_the_time_it_needs(tasker: Peer, here: None) -> None:
    assert tasker.result("never_task")["resultType"] == "complete"


def test_a_tool_that_only_runs_as_a_task_is_one_from_the_start(
    tasker: Peer, tools: None, in_state: Callable[..., Any]
) -> None:
    done = in_state(tasker, create_task(tasker, "must", {"word": "go"}), "completed")
    assert done["result"]["content"][0]["text"] == "must go"


@pytest.mark.shows("tasks-extension.needed", "tasks-extension.old-capability", "tasks-extension.undeclared")
def test_a_client_that_does_not_declare_the_extension_gets_no_task(
    client: RawClient, tasker: Peer, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_task, "TASK_AFTER_SECONDS", 0)
    earlier = {"tasks": {"requests": {"tools": {"call": {}}}, "list": {}, "cancel": {}}}
    assert message_of(tasker.call("quick", {"word": "a request before"}))["result"]["resultType"] == "task"
    for capabilities in ({}, earlier, {"extensions": {"io.modelcontextprotocol/tasks": None}}):
        peer = client.peer(MODERN, capabilities)
        assert message_of(peer.call("quick", {"word": "x"}))["result"]["resultType"] == "complete"
        rejection = peer.call("must", {"word": "x"})
        assert rejection.status_code == 400
        assert error_of(rejection)["code"] == -32021
        assert error_of(rejection)["data"] == {"requiredCapabilities": EXTENSION}


@pytest.mark.shows("tasks-extension.task-parameter", "tasks.undeclared")
@pytest.mark.parametrize("capabilities", [{}, EXTENSION])
def test_the_parameter_of_the_earlier_tasks_is_ignored(
    client: RawClient, here: None, tasks_never: None, capabilities: dict[str, Any]
) -> None:
    peer = client.peer(MODERN, capabilities)
    answer = peer.request("tools/call", {**call_params("quick", {"word": "x"}), "task": {"ttl": "wrong"}})
    assert message_of(answer)["result"]["resultType"] == "complete"


@pytest.mark.shows("tasks-extension.questions-first")
def test_an_early_elicitation_is_in_the_result_and_the_call_may_become_a_task_later(
    tasker: Peer,
    registries: None,
    offer: Callable[..., object],
    gate: Gate,
    in_state: Callable[..., Any],
    tasks_never: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tool(task="optional")
    async def asks_then_works(context: ToolContext) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        name = (await context.elicit("Who?", form, key="name")).content["name"]
        await gate.wait()
        return f"done for {name}"

    offer("asks_then_works")
    first = tasker.result("asks_then_works")
    assert first["resultType"] == "input_required"
    assert list(first["inputRequests"]) == ["name"]
    monkeypatch.setattr(start_task, "TASK_AFTER_SECONDS", 0.1)
    again = {"requestState": first["requestState"], "inputResponses": {"name": accepted("Ada")}}
    created = message_of(tasker.request("tools/call", call_params("asks_then_works") | again))["result"]
    assert created["resultType"] == "task"
    gate.open()
    done = in_state(tasker, created["taskId"], "completed")
    assert done["result"]["content"][0]["text"] == "done for Ada"


# --- How a task ends ----------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks-extension.tool-errors")
def test_a_task_whose_tool_failed_is_completed_with_that_result(
    tasker: Peer, tools: None, in_state: Callable[..., Any]
) -> None:
    done = in_state(tasker, create_task(tasker, "fails"), "completed")
    assert done["result"] == {"content": [{"type": "text", "text": "No luck today."}], "isError": True}
    assert "error" not in done


@pytest.mark.shows("tasks-extension.failed", "tasks-extension.failed-why")
def test_a_task_that_ended_in_an_error_of_the_protocol_has_failed_and_says_why(
    tasker: Peer, tools: None, in_state: Callable[..., Any]
) -> None:
    done = in_state(tasker, create_task(tasker, "breaks"), "failed")
    assert done["error"] == {"code": 4711, "message": "Not like this.", "data": {"why": "a test"}}
    assert done["statusMessage"] == "Not like this."
    assert "result" not in done


@pytest.mark.shows("tasks-extension.failed-why")
def test_a_task_whose_process_was_lost_has_failed_and_stays_so(
    tasker: Peer, tools: None, gate: Gate, in_state: Callable[..., Any], settings: Any, eventually: Callable[..., Any]
) -> None:
    task = create_task(tasker, "must_hold")
    gate.wait_for_tool()
    settings.MCPHUB_PROCESS_TIMEOUT = 0.1
    RunningCall.objects.update(owner=uuid.uuid4())
    done = in_state(tasker, task, "failed")
    assert done["error"]["code"] == -32603
    assert "was lost" in done["error"]["message"]
    assert done["statusMessage"] == done["error"]["message"]
    gate.open()
    gate.wait_for_stop()
    eventually(lambda: not run.running_here())
    assert get_task(tasker, task) == done
    assert Call.objects.get().outcome == "lost"


def test_a_result_is_kept_until_its_time_is_over_and_then_dropped(
    tasker: Peer, here: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(tasker, "must", {"word": "x"})
    first = in_state(tasker, task, "completed")
    kept_until = datetime.fromisoformat(first["createdAt"]) + timedelta(milliseconds=first["ttlMs"])
    assert kept_until > timezone.now() + timedelta(minutes=9)
    housekeeping.drop_old_answers()
    assert get_task(tasker, task) == first
    CallAnswer.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert error_for(tasker, "tasks/get", {"taskId": task})["code"] == -32602
    housekeeping.drop_old_answers()
    assert not CallAnswer.objects.exists()
    assert Call.objects.get().outcome == "ok"


def test_a_task_is_one_record_with_its_requests_id_and_looks_leave_none(
    tasker: Peer, tools: None, background: bool, in_state: Callable[..., Any], tenant: Tenant
) -> None:
    task = create_task(tasker, "must", {"word": "x"}, id="r-7")
    in_state(tasker, task, "completed")
    tasker.request("tasks/cancel", {"taskId": task})
    call = Call.objects.get()
    assert (call.method, call.tool_name, call.request_id) == ("tools/call", "must", '"r-7"')
    assert (call.outcome, call.background, call.tenant) == ("ok", background, tenant)
    assert not RunningCall.objects.exists()


# --- Questions ----------------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks-extension.open-questions", "tasks-extension.update", "tasks-extension.complete")
def test_a_task_that_asks_shows_its_question_and_goes_on_with_the_answer(
    tasker: Peer, tools: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(tasker, "asks")
    waiting = in_state(tasker, task, "input_required")
    (request,) = waiting["inputRequests"].values()
    assert request["method"] == "elicitation/create"
    assert request["params"]["message"] == "Your name?"
    answers = dict.fromkeys(waiting["inputRequests"], accepted("Ada"))
    answered = result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": answers})
    assert set(answered) == {"resultType", "_meta"}
    assert answered["resultType"] == "complete"
    done = in_state(tasker, task, "completed")
    assert done["result"]["content"][0]["text"] == "hello Ada"
    assert "inputRequests" not in done


def test_while_it_waits_no_process_has_it_and_with_the_answer_it_is_run_again(
    tasker: Peer, tools: None, in_state: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    task = create_task(tasker, "asks")
    in_state(tasker, task, "input_required")
    eventually(lambda: not run.running_here())
    assert RunningCall.objects.get().status == CallStatus.WAITING
    RunningCall.objects.update(owner=uuid.uuid4())
    result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": {"name": accepted("Ada")}})
    in_state(tasker, task, "completed")
    assert Call.objects.get().outcome == "ok"


@pytest.mark.shows("tasks-extension.stray-answers", "tasks-extension.open-questions")
def test_answers_may_come_one_by_one_and_those_to_nothing_that_is_asked_are_ignored(
    tasker: Peer, here: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(tasker, "asks_two")
    assert set(in_state(tasker, task, "input_required")["inputRequests"]) == {"first", "last"}
    for answers, still_open in (
        ({"no-such": accepted("x")}, {"first", "last"}),
        ({"first": accepted("Ada"), "other": {}}, {"last"}),
        ({"first": accepted("Eve")}, {"last"}),
        ({}, {"last"}),
    ):
        assert (
            result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": answers})["resultType"] == "complete"
        )
        assert set(get_task(tasker, task)["inputRequests"]) == still_open
    result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": {"last": accepted("Byron")}})
    done = in_state(tasker, task, "completed")
    assert done["result"]["content"][0]["text"] == "hello Ada Byron"
    result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": {"last": accepted("Late")}})
    assert get_task(tasker, task) == done


@pytest.mark.shows("tasks-extension.keys")
def test_no_key_ever_stands_for_two_questions(tasker: Peer, here: None, in_state: Callable[..., Any]) -> None:
    task, used = create_task(tasker, "asks"), []
    for _ in range(2):
        (key,) = in_state(tasker, task, "input_required")["inputRequests"]
        assert key not in used
        used.append(key)
        bad = {"action": "accept", "content": {"name": 5}}
        result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": dict.fromkeys(used, bad)})
    (key,) = in_state(tasker, task, "input_required")["inputRequests"]
    result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": {key: accepted("Ada")}})
    assert in_state(tasker, task, "completed")["result"]["content"][0]["text"] == "hello Ada"


def test_a_task_whose_answers_do_not_fit_says_why_and_ends_after_three(
    tasker: Peer, here: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(tasker, "asks")
    for turn in range(3):
        ((key, request),) = in_state(tasker, task, "input_required")["inputRequests"].items()
        assert ("The last answer was invalid: name: 5 is not of type" in request["params"]["message"]) is (turn > 0)
        bad = {"action": "accept", "content": {"name": 5}}
        result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": {key: bad}})
    result = in_state(tasker, task, "completed")["result"]
    assert result["isError"]
    assert "could be used, of 3. The last one: name: 5 is not of type" in result["content"][0]["text"]


def test_answers_of_a_wrong_shape_are_refused_and_change_nothing(
    tasker: Peer, here: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(tasker, "asks")
    waiting = in_state(tasker, task, "input_required")
    for params in ({}, *({"inputResponses": wrong} for wrong in (None, [], "x", {"name": 5}, {"name": None}))):
        rejection = tasker.request("tasks/update", {"taskId": task, **params})
        assert rejection.status_code == 400, params
        assert error_of(rejection)["code"] == -32602
        assert "inputResponses" in error_of(rejection)["message"]
    assert get_task(tasker, task) == waiting


def test_a_question_beyond_the_clients_capabilities_fails_the_task(
    client: RawClient, here: None, in_state: Callable[..., Any]
) -> None:
    peer = client.peer(MODERN, EXTENSION)
    done = in_state(peer, create_task(peer, "asks"), "failed")
    assert done["error"]["code"] == -32021
    assert done["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


# --- Cancellation -------------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks-extension.cancel", "tasks-extension.complete")
def test_a_task_that_is_cancelled_is_stopped_and_once_more_changes_nothing(
    tasker: Peer, tools: None, gate: Gate, in_state: Callable[..., Any]
) -> None:
    task = create_task(tasker, "must_hold")
    gate.wait_for_tool()
    assert set(result_of(tasker, "tasks/cancel", {"taskId": task})) == {"resultType", "_meta"}
    gate.wait_for_stop()
    done = in_state(tasker, task, "cancelled")
    assert not {"result", "error", "inputRequests"} & set(done)
    assert result_of(tasker, "tasks/cancel", {"taskId": task})["resultType"] == "complete"
    assert get_task(tasker, task) == done
    assert Call.objects.get().outcome == "cancelled"


def test_a_task_that_waits_for_its_client_can_be_cancelled(
    tasker: Peer, tools: None, in_state: Callable[..., Any]
) -> None:
    task = create_task(tasker, "asks")
    in_state(tasker, task, "input_required")
    result_of(tasker, "tasks/cancel", {"taskId": task})
    done = in_state(tasker, task, "cancelled")
    result_of(tasker, "tasks/update", {"taskId": task, "inputResponses": {"name": accepted("Ada")}})
    assert get_task(tasker, task) == done


def test_a_task_that_is_over_stays_as_it_is(tasker: Peer, here: None, in_state: Callable[..., Any]) -> None:
    task = create_task(tasker, "must", {"word": "x"})
    done = in_state(tasker, task, "completed")
    assert result_of(tasker, "tasks/cancel", {"taskId": task})["resultType"] == "complete"
    assert get_task(tasker, task) == done


# --- Clients that leave -------------------------------------------------------------------------------------------


def test_a_client_that_leaves_with_its_task_loses_nothing(
    make_client: Callable[..., RawClient], key: str, tools: None, gate: Gate, in_state: Callable[..., Any]
) -> None:
    leaving = make_client(key)
    task = create_task(leaving.peer(MODERN, EXTENSION), "held")
    gate.wait_for_tool()
    leaving.http.close()
    gate.open()
    returned = make_client(key).peer(MODERN, EXTENSION)
    assert in_state(returned, task, "completed")["result"]["content"][0]["text"] == "held no more"


def test_a_client_that_leaves_before_there_is_a_task_gives_its_call_up(
    tasker: Peer, tools: None, gate: Gate, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_task, "TASK_AFTER_SECONDS", 60)
    with tasker.stream("tools/call", call_params("held", meta={"progressToken": "t"})) as stream:
        assert stream.next()["method"] == "notifications/progress"
    gate.wait_for_stop()
    assert eventually(Call.objects.first).outcome == "cancelled"


# --- Subscriptions ------------------------------------------------------------------------------------------------


def subscribe(peer: Peer, *tasks: Any) -> Any:
    return peer.stream("subscriptions/listen", {"notifications": {"taskIds": list(tasks)}}, id="sub")


def next_state(stream: Stream) -> dict[str, Any]:
    """The task in the next notification of the stream."""
    message = stream.next()
    assert message["method"] == "notifications/tasks", message
    params = message["params"]
    assert params.pop("_meta") == {"io.modelcontextprotocol/subscriptionId": "sub"}
    return dict(params)


def plain(task: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in task.items() if name not in {"resultType", "_meta"}}


@pytest.mark.shows("tasks-extension.no-progress")
def test_each_change_of_a_task_is_notified_once_without_progress_and_logs(
    tasker: Peer, registries: None, offer: Callable[..., object], gate: Gate, background: bool
) -> None:
    @tool(task="required", background=background)
    async def reports_and_elicits(context: ToolContext) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        for step in range(3):
            context.progress(step, message=f"Step {step}")
            context.log("emergency", "logged")
        return str((await context.elicit("Who?", form, key="name")).content)

    offer("reports_and_elicits")
    meta = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
    task = create_task(tasker, "reports_and_elicits", meta=meta)
    with subscribe(tasker, task) as stream:
        acknowledged = stream.next()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"taskIds": [task]}
        states = [next_state(stream)]
        while states[-1]["status"] == "working":
            states.append(next_state(stream))
        assert states[-1] == plain(get_task(tasker, task))
        tasker.request("tasks/update", {"taskId": task, "inputResponses": {"name": accepted("Ada")}})
        while states[-1]["status"] != "completed":
            states.append(next_state(stream))
        assert states[-1] == plain(get_task(tasker, task))
    statuses = [state["status"] for state in states]
    assert all(one != other for one, other in pairwise(statuses))
    assert CallEvent.objects.filter(kind="log").exists()


def test_a_finished_task_is_notified_once(tasker: Peer, here: None, gate: Gate, in_state: Callable[..., Any]) -> None:
    done, going = create_task(tasker, "must", {"word": "x"}), create_task(tasker, "must_hold")
    in_state(tasker, done, "completed")
    with subscribe(tasker, done, going, done) as stream:
        assert stream.next()["params"]["notifications"] == {"taskIds": [done, going]}
        assert [next_state(stream)["status"] for _ in range(2)] == ["completed", "working"]
        gate.open()
        last = next_state(stream)
        assert (last["taskId"], last["status"]) == (going, "completed")


@pytest.mark.shows("tasks-extension.access")
def test_a_subscription_is_limited_to_own_tasks(
    tasker: Peer, here: None, gate: Gate, make_client: Callable[..., RawClient], other_key: str, tenant: Tenant
) -> None:
    task = create_task(tasker, "must_hold")
    second_key = keys.issue(tenant, "second")[1]
    for key in (other_key, second_key):
        with subscribe(make_client(key).peer(MODERN, EXTENSION), task, "nonsense", str(uuid.uuid4())) as stream:
            assert stream.next()["params"]["notifications"] == {"taskIds": []}


@pytest.mark.shows("tasks-extension.subscription-undeclared")
def test_a_subscription_to_tasks_needs_the_extension(client: RawClient, tasker: Peer, here: None) -> None:
    task = create_task(tasker, "must", {"word": "x"})
    for capabilities in ({}, {"tasks": {}}):
        peer = client.peer(MODERN, capabilities)
        rejection = peer.request("subscriptions/listen", {"notifications": {"taskIds": [task]}})
        assert rejection.status_code == 400
        assert error_of(rejection)["code"] == -32021
        assert error_of(rejection)["data"] == {"requiredCapabilities": EXTENSION}


def test_an_invalid_list_of_tasks_is_rejected(tasker: Peer) -> None:
    for ids in (None, "x", [1], {"a": 1}, ["x"] * 101):
        rejection = tasker.request("subscriptions/listen", {"notifications": {"taskIds": ids}})
        assert rejection.status_code == 400, ids
        assert error_of(rejection)["code"] == -32602


# --- Who may ------------------------------------------------------------------------------------------------------

METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


def about(task: Any) -> dict[str, Any]:
    return {"taskId": task, "inputResponses": {}}


@pytest.mark.shows("tasks-extension.methods-undeclared")
@pytest.mark.parametrize("method", METHODS)
def test_the_methods_need_the_extension(client: RawClient, tasker: Peer, here: None, method: str) -> None:
    task = create_task(tasker, "must", {"word": "x"})
    for id in (task, "no-such"):
        rejection = client.peer(MODERN).request(method, about(id))
        assert rejection.status_code == 400
        assert error_of(rejection)["code"] == -32021
        assert error_of(rejection)["data"] == {"requiredCapabilities": EXTENSION}


@pytest.mark.shows("tasks-extension.unknown", "tasks-extension.unknown-elsewhere", "tasks-extension.telling-errors")
@pytest.mark.parametrize("method", METHODS)
def test_a_task_that_does_not_exist_is_unknown(tasker: Peer, method: str) -> None:
    for id in ("", "nonsense", "é", "\x00", str(uuid.UUID(int=7)), "x" * 5000):
        rejection = tasker.request(method, about(id), headers={"Mcp-Name": encoded(id)})
        assert rejection.status_code == 400, id
        assert error_of(rejection)["code"] == -32602
        assert error_of(rejection)["message"] == "There is no such task, or it has expired."
        assert error_of(rejection)["data"] == {"taskId": id}


def encoded(value: str) -> str:
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


@pytest.mark.parametrize("method", METHODS)
def test_an_id_that_is_no_text_is_refused(tasker: Peer, method: str) -> None:
    for id in (None, 5, {}, ["x"], True):
        rejection = error_for(tasker, method, about(id))
        assert (rejection["code"], rejection["data"]) == (-32602, {"field": "taskId"})


@pytest.mark.shows("tasks-extension.access", "tasks-extension.unknown-elsewhere")
@pytest.mark.parametrize("method", METHODS)
def test_a_task_of_another_tenant_or_key_looks_unknown(
    tasker: Peer,
    here: None,
    gate: Gate,
    method: str,
    make_client: Callable[..., RawClient],
    other_key: str,
    tenant: Tenant,
) -> None:
    task = create_task(tasker, "must_hold")
    gate.wait_for_tool()
    for key in (other_key, keys.issue(tenant, "second")[1]):
        stranger = make_client(key).peer(MODERN, EXTENSION)
        unknown = error_for(stranger, method, about("no-such"))
        assert error_for(stranger, method, about(task)) == {**unknown, "data": {"taskId": task}}
    assert get_task(tasker, task)["status"] == "working"
    gate.open()


def test_a_call_that_is_no_task_cannot_be_looked_at(
    tasker: Peer, here: None, gate: Gate, in_state: Callable[..., Any]
) -> None:
    task = create_task(tasker, "must_hold")
    gate.wait_for_tool()
    RunningCall.objects.update(task_seconds=None)
    assert error_for(tasker, "tasks/get", {"taskId": task})["code"] == -32602
    RunningCall.objects.update(task_seconds=60)
    gate.open()
    in_state(tasker, task, "completed")
    CallAnswer.objects.update(is_task=False)
    assert error_for(tasker, "tasks/get", {"taskId": task})["code"] == -32602


@pytest.mark.shows("tasks-extension.unguessable")
def test_nobody_can_guess_the_id_of_a_task(tasker: Peer, here: None) -> None:
    tasks = [create_task(tasker, "must", {"word": "x"}) for _ in range(3)]
    signatures = {task.rpartition(".")[2] for task in tasks}
    assert len(signatures) == len(tasks)
    assert all(re.fullmatch(r"[\w-]{43}", signature) for signature in signatures), "256 bits that only the hub can make"
    for task in tasks:
        call, _, signature = task.rpartition(".")
        for guessed in (call, f"{call}.", f"{call}.{signature[:-1]}", f"{call}.{'A' * 43}", f"{call}.{signature}A"):
            assert error_for(tasker, "tasks/get", {"taskId": guessed})["code"] == -32602


@pytest.mark.shows("tasks-extension.header")
@pytest.mark.parametrize("method", METHODS)
def test_the_header_names_the_same_task(tasker: Peer, here: None, method: str) -> None:
    task = create_task(tasker, "must", {"word": "x"})
    for name in (None, "other", task.upper()):
        rejection = tasker.request(method, about(task), headers={"Mcp-Name": name})
        assert rejection.status_code == 400
        assert error_of(rejection)["code"] == -32020
    assert tasker.request(method, about(task), headers={"Mcp-Name": encoded(task)}).status_code == 200


# --- Beside the earlier tasks -------------------------------------------------------------------------------------


@pytest.mark.shows("tasks-extension.no-result-method")
@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
def test_the_other_methods_of_the_earlier_tasks_are_not_there(tasker: Peer, here: None, method: str) -> None:
    rejection = tasker.request(method, {"taskId": create_task(tasker, "must", {"word": "x"})})
    assert rejection.status_code == 404
    assert error_of(rejection)["code"] == -32601


@pytest.mark.shows("tasks-extension.no-old-capabilities")
def test_the_hub_declares_the_extension_and_not_the_earlier_tasks(client: RawClient) -> None:
    declared = message_of(client.modern("server/discover"))["result"]["capabilities"]
    assert declared["extensions"]["io.modelcontextprotocol/tasks"] == {}
    assert "tasks" not in declared
    listed = message_of(client.modern("tools/list"))["result"]["tools"]
    assert all("execution" not in tool for tool in listed)


@pytest.mark.shows("tasks-extension.old-revision")
def test_in_an_earlier_revision_the_extension_opens_nothing(
    client: RawClient, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_task, "TASK_AFTER_SECONDS", 0)
    for version in HANDSHAKES:
        answer = message_of(client.handshake(version, EXTENSION).call("quick", {"word": "x"}))["result"]
        assert answer["content"][0]["text"] == "quick x"
        assert not {"resultType", "task", "taskId"} & set(answer)


@pytest.mark.shows("tasks-extension.old-tasks")
def test_a_task_of_the_earlier_kind_can_still_be_looked_at_and_cancelled(
    client: RawClient, here: None, gate: Gate, in_state: Callable[..., Any]
) -> None:
    params = call_params("must_hold") | {"task": {}}
    task = message_of(client.handshake().request("tools/call", params))["result"]["task"]["taskId"]
    knows_the_earlier_only = client.peer(MODERN, {"tasks": {"cancel": {}}})
    knows_nothing = client.peer(MODERN)
    assert get_task(knows_the_earlier_only, task)["status"] == "working"
    for method in METHODS:
        assert error_for(knows_nothing, method, about(task))["code"] == -32021
    assert error_for(knows_the_earlier_only, "tasks/update", about(task))["code"] == -32021
    assert result_of(knows_the_earlier_only, "tasks/cancel", {"taskId": task})["resultType"] == "complete"
    assert in_state(knows_the_earlier_only, task, "cancelled")


def test_a_task_of_this_kind_is_not_for_clients_that_know_the_earlier_only(
    client: RawClient, tasker: Peer, here: None
) -> None:
    task = create_task(tasker, "must", {"word": "x"})
    for method in METHODS:
        assert error_for(client.peer(MODERN, {"tasks": {}}), method, about(task))["code"] == -32021


# --- Limits -------------------------------------------------------------------------------------------------------


def test_many_tasks_are_had_at_once_and_each_gets_its_own_result(
    tasker: Peer, tools: None, in_state: Callable[..., Any]
) -> None:
    tasks = {create_task(tasker, "must", {"word": str(number)}): number for number in range(MANY)}
    assert len(tasks) == MANY
    for task, number in tasks.items():
        assert in_state(tasker, task, "completed")["result"]["content"][0]["text"] == f"must {number}"


def test_a_task_knows_for_which_person_its_caller_acts(
    registries: None,
    offer: Callable[..., object],
    make_client: Callable[..., RawClient],
    tenant: Tenant,
    background: bool,
    in_state: Callable[..., dict[str, Any]],
) -> None:
    """Credentials of upstreams, and rows of the operator's own models, may belong to that person."""

    @tool(task="required", background=background)
    def whose(context: ToolContext) -> str:
        return f"{context.caller.person_id} {context.caller.key_id}"

    offer("whose")
    ann = User.objects.create_user("ann")
    Membership.objects.create(user=ann, tenant=tenant, role=Role.OPERATOR)
    row, key = keys.issue(tenant, "laptop", created_by=ann, acts_for_creator=True)
    peer = make_client(key).peer(MODERN, EXTENSION)
    ended = in_state(peer, create_task(peer, "whose"), "completed")
    assert ended["result"]["content"][0]["text"] == f"{ann.pk} {row.pk}"
