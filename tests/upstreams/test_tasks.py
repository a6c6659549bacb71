"""Tasks of modern upstreams: the hub polls, answers and cancels them for the client, and never repeats the call."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from django.utils import timezone

from tests.upstreams.scripted import LOOK, reply, result
from tests.upstreams.task_server import TaskServer
from tests.web_services import Received, Service, http_response
from tests.wire.client import MODERN, Peer, RawClient, call_params, error_of, message_of
from tests.wire.task_tools import EXTENSION
from tools_app.audit.recorder.entries import process_id
from tools_app.calls.upstream_tasks import UpstreamTaskSweeper
from tools_app.core import encryption
from tools_app.models import Call, Outcome, Process, RunningCall, Tenant, Tool, Upstream, UpstreamTask
from tools_app.upstreams import task_rows
from tools_app.upstreams.exchanges import tasks
from tools_app.upstreams.task_rows import KeptTask

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
WHO = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
ROOTS = {"method": "roots/list", "params": {}}
OLD = "2025-11-25"


@pytest.fixture
def server(serve: Callable[..., Service], add_upstream: Callable[..., Upstream]) -> TaskServer:
    server = TaskServer()
    assert add_upstream(f"{serve(server.answer).url}/mcp", era="modern").status.makes_tasks
    return server


def state_of(peer: Peer, id: str) -> dict[str, Any]:
    task: dict[str, Any] = message_of(peer.request("tasks/get", {"taskId": id}))["result"]
    return task


def test_a_call_becomes_a_task_of_the_hub_when_its_upstream_makes_one(
    server: TaskServer, client: RawClient, eventually: Callable[..., Any]
) -> None:
    assert Tool.objects.get(name="books_look").task == "optional"
    peer = client.peer(MODERN, EXTENSION)
    created = peer.result("books_look")
    assert created["resultType"] == "task"
    assert created["status"] == "working"
    eventually(lambda: state_of(peer, created["taskId"])["statusMessage"] == "Reading")
    # A task outlives a connection that breaks.
    server.failures_left = 2
    eventually(lambda: not server.failures_left)
    server.set("completed", result=result("done"))
    task = eventually(lambda: state if (state := state_of(peer, created["taskId"]))["status"] != "working" else None)
    assert task["result"]["content"][0]["text"] == "done"
    assert server.methods.count("tools/call") == 1
    assert "tasks/cancel" not in server.methods
    assert set(server.task_names) == {"t/1"}
    assert [call.outcome for call in Call.objects.filter(tool_name="books_look")] == [Outcome.OK]


def test_a_question_of_a_task_is_answered_once_under_its_own_key(
    server: TaskServer, client: RawClient, eventually: Callable[..., Any]
) -> None:
    peer = client.peer(MODERN, {**EXTENSION, "elicitation": {}})
    server.set("input_required", inputRequests={"who": WHO})
    created = peer.result("books_look")
    task = eventually(lambda: state if (state := state_of(peer, created["taskId"])).get("inputRequests") else None)
    assert task["inputRequests"].keys() == {"who"}
    response = {"action": "accept", "content": {"name": "Ada"}}
    peer.request("tasks/update", {"taskId": created["taskId"], "inputResponses": {"who": response}})
    ended = eventually(lambda: state if (state := state_of(peer, created["taskId"]))["status"] == "completed" else None)
    assert json.loads(ended["result"]["content"][0]["text"]) == {"who": response}
    assert server.answers == [{"who": response}]
    assert server.methods.count("tools/call") == 1


def test_a_client_of_a_handshake_waits_for_the_task_and_is_asked_on_its_stream(
    server: TaskServer, client: RawClient
) -> None:
    peer = client.peer(OLD, {"elicitation": {}})
    server.set("input_required", inputRequests={"who": WHO}, statusMessage="Who is it?")
    params = {**call_params("books_look"), "_meta": {"progressToken": 1}}
    with peer.stream("tools/call", params) as stream:
        messages = [stream.next(), stream.next()]
        question = next(message for message in messages if "id" in message)
        (progress,) = (message for message in messages if "id" not in message)
        assert progress["params"]["message"] == "Who is it?"
        peer.respond(question["id"], {"action": "accept", "content": {"name": "Ada"}})
        response = stream.read_to_end()[-1]
    assert "Ada" in response["result"]["content"][0]["text"]
    assert server.methods.count("tools/call") == 1
    assert server.answers == [{"who": {"action": "accept", "content": {"name": "Ada"}}}]


def test_a_form_that_cannot_be_asked_is_cancelled_and_anything_else_ends_the_task(
    server: TaskServer, client: RawClient, eventually: Callable[..., Any]
) -> None:
    peer = client.peer(OLD)
    server.set("input_required", inputRequests={"who": WHO})
    assert "cancel" in peer.result("books_look")["content"][0]["text"]
    assert server.answers == [{"who": {"action": "cancel"}}]
    server.set("input_required", inputRequests={"where": ROOTS})
    call_result = peer.result("books_look")
    assert call_result["isError"]
    assert "does not support roots" in call_result["content"][0]["text"]
    eventually(lambda: "tasks/cancel" in server.methods)


def test_cancelling_the_task_of_the_hub_cancels_that_of_the_upstream(
    server: TaskServer, client: RawClient, eventually: Callable[..., Any]
) -> None:
    peer = client.peer(MODERN, EXTENSION)
    created = peer.result("books_look")
    peer.request("tasks/cancel", {"taskId": created["taskId"]})
    eventually(lambda: "tasks/cancel" in server.methods)
    assert eventually(lambda: state_of(peer, created["taskId"])["status"] == "cancelled")
    assert [call.outcome for call in Call.objects.filter(tool_name="books_look")] == [Outcome.CANCELLED]


def test_a_client_that_goes_away_while_it_waits_cancels_the_task(
    server: TaskServer, client: RawClient, eventually: Callable[..., Any]
) -> None:
    peer = client.peer(OLD)
    with peer.stream("tools/call", {**call_params("books_look"), "_meta": {"progressToken": 1}}, id=7) as stream:
        stream.next()
        peer.notify("notifications/cancelled", {"requestId": 7})
        eventually(lambda: "tasks/cancel" in server.methods)


def test_a_modern_client_without_the_extension_gets_no_task_and_hears_if_it_needs_it(
    server: TaskServer, client: RawClient
) -> None:
    peer = client.peer(MODERN, {"elicitation": {}})
    assert peer.result("books_look")["content"][0]["text"] == "at once"
    assert server.declared == [{"elicitation": {"form": {}}}]
    server.requires_tasks = True
    error = error_of(peer.call("books_look"))
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": EXTENSION})


@pytest.mark.parametrize(
    ("state", "code", "message"),
    [
        ({"status": "failed", "error": {"code": 17, "message": "It broke."}}, 17, "It broke."),
        ({"status": "failed", "error": {"code": -32042, "message": "It broke."}}, -32603, "It broke."),
    ],
)
def test_a_task_that_fails_is_a_failed_task_of_the_hub(
    server: TaskServer, client: RawClient, eventually: Callable[..., Any], state: Any, code: int, message: str
) -> None:
    peer = client.peer(MODERN, EXTENSION)
    server.state = state
    created = peer.result("books_look")
    task = eventually(lambda: state if (state := state_of(peer, created["taskId"]))["status"] == "failed" else None)
    assert task["error"]["code"] == code
    assert message in task["error"]["message"]
    handshake_result = client.peer(OLD).result("books_look")
    assert handshake_result["isError"], "a model reads it"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"status": "cancelled", "statusMessage": "Closing time."}, "Closing time."),
        ({"status": "asleep"}, "no valid state"),
        ({"status": "completed"}, "no valid result"),
        ({"status": "input_required", "inputRequests": ["who"]}, "invalid way"),
    ],
)
def test_other_ends_of_a_task_are_errors_of_the_tool(
    server: TaskServer, client: RawClient, state: Any, message: str
) -> None:
    server.state = state
    call_result = client.peer(OLD).result("books_look")
    assert call_result["isError"]
    assert message in call_result["content"][0]["text"]


def test_a_task_that_cannot_be_asked_about_any_more_ends_the_call(
    server: TaskServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "POLL_SECONDS", 0.01)
    server.failures_left = 10_000
    call_result = client.peer(OLD).result("books_look")
    assert call_result["isError"]
    assert server.methods.count("tools/call") == 1


def test_the_task_of_a_call_that_ended_with_its_process_is_cancelled_once(
    server: TaskServer, loopback_tenant: Tenant, eventually: Callable[..., Any], settings: Any
) -> None:
    id = uuid4()
    task = KeptTask("t/1", "books", {**EXTENSION}, None, None)
    UpstreamTask.objects.create(
        call_id=id,
        tenant=loopback_tenant,
        upstream_id=Upstream.objects.get().pk,
        owner=uuid4(),
        sealed=encryption.seal(msgspec.json.encode(task), f"upstream-task:{id}"),
    )
    settings.MCPHUB_PROCESS_TIMEOUT = -1.0
    sweeper = UpstreamTaskSweeper()
    sweeper.sweep()
    eventually(lambda: not UpstreamTask.objects.exists())
    sweeper.sweep()
    assert server.methods.count("tasks/cancel") == 1


@pytest.fixture
def make_running_task(loopback_tenant: Tenant, server: TaskServer) -> Callable[..., RunningCall]:
    """Create a call that is a task of the hub and of an upstream; the process `waiter` polls the upstream's task."""

    def make(owner: UUID, waiter: UUID, **fields: Any) -> RunningCall:
        defaults: dict[str, Any] = {"tool_name": "books_look", "status": "running", "background": False}
        defaults |= {"timeout_seconds": 60, "task_seconds": 60.0, "changed_at": timezone.now() + timedelta(seconds=1)}
        call = RunningCall.objects.create(tenant=loopback_tenant, owner=owner, **defaults | fields)
        upstream_id = Upstream.objects.get().pk
        UpstreamTask.objects.create(
            call_id=call.pk, tenant=loopback_tenant, upstream_id=upstream_id, owner=waiter, sealed=b"x"
        )
        return call

    return make


def test_a_call_goes_on_without_its_process_unless_another_one_already_waits_for_its_task(
    make_running_task: Callable[..., RunningCall],
) -> None:
    dead, lost, alive = uuid4(), uuid4(), uuid4()
    Process.objects.create(pk=alive, kind="web", host="here", pid=1)
    calls = [make_running_task(dead, waiter) for waiter in (dead, lost, alive)]
    assert task_rows.continuable(calls, {dead}) == {calls[0].pk, calls[1].pk}
    assert task_rows.continuable(calls, {lost}) == set()


def test_a_process_that_stops_leaves_the_tasks_that_clients_know_of_and_nothing_else(
    make_running_task: Callable[..., RunningCall],
) -> None:
    this_process, other = process_id(), uuid4()
    left = [
        make_running_task(this_process, this_process),
        make_running_task(this_process, this_process, status="waiting"),
        make_running_task(other, this_process),
    ]
    unchanged = [
        make_running_task(this_process, this_process, cancel_requested=True),
        make_running_task(this_process, this_process, task_seconds=None),
        make_running_task(this_process, this_process, changed_at=timezone.now() - timedelta(hours=1)),
        make_running_task(this_process, other),
    ]
    assert task_rows.leave() == {call.pk for call in left}
    owners = [
        [model.objects.get(pk=call.pk).owner for call in (*left, *unchanged)] for model in (RunningCall, UpstreamTask)
    ]
    assert owners[0] == [
        task_rows.UNOWNED,
        task_rows.UNOWNED,
        other,
        this_process,
        this_process,
        this_process,
        this_process,
    ]
    assert owners[1] == [task_rows.UNOWNED] * 3 + [this_process, this_process, this_process, other]


def test_an_upstream_that_was_not_offered_tasks_and_makes_one_is_refused(
    serve: Callable[..., Service], add_upstream: Callable[..., Upstream], client: RawClient
) -> None:
    def answer(request: Received) -> Any:
        message = json.loads(request.body)
        match message["method"]:
            case "server/discover":
                return reply(message["id"], {"supportedVersions": [MODERN], "capabilities": {"tools": {}}})
            case "tools/list":
                return reply(message["id"], {"resultType": "complete", "tools": [LOOK]})
            case "tools/call":
                return reply(message["id"], {"resultType": "task", "taskId": "t"})
        return http_response(404)

    add_upstream(f"{serve(answer).url}/mcp", era="modern")
    call_result = client.peer(MODERN, EXTENSION).result("books_look")
    assert "unknown type" in call_result["content"][0]["text"]
