"""Completions, list changes and task-only tools of upstreams are passed through."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.upstreams.scripted import reply, result
from tests.upstreams.servers import SdkServer, tool
from tests.web_services import Received, Service, http_response
from tests.wire.client import MODERN, RawClient, error_of, message_of
from tools_app.models import CallEvent, ItemState, Upstream, UpstreamItem

TASKS_CAPABILITY = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
SLOW = {**tool("slow"), "execution": {"taskSupport": "required"}}


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_suggestions_come_from_the_upstream(
    sdk_server: Callable[..., SdkServer], add_upstream: Any, client: RawClient, era: str
) -> None:
    add_upstream(sdk_server(), era=era)
    peer = client.peer(MODERN)
    for ref, name in (
        ({"type": "ref/prompt", "name": "books_explain"}, "topic"),
        ({"type": "ref/resource", "uri": "docs://page/{number}"}, "number"),
    ):
        params = {"ref": ref, "argument": {"name": name, "value": "t"}, "context": {"arguments": {"a": "b"}}}
        values = message_of(peer.request("completion/complete", params))["result"]["completion"]["values"]
        assert values == [f"{ref['type']}:{name}:t:{{'a': 'b'}}", "tea"]


def test_suggestions_of_a_changed_definition_are_not_asked_for(
    sdk_server: Callable[..., SdkServer], add_upstream: Any, client: RawClient
) -> None:
    add_upstream(sdk_server())
    UpstreamItem.objects.filter(name="explain").update(digest="0" * 64)
    ref = {"type": "ref/prompt", "name": "books_explain"}
    params = {"ref": ref, "argument": {"name": "topic", "value": "t"}}
    error = error_of(client.peer(MODERN).request("completion/complete", params))
    assert error["message"] == "An error occurred completing the argument."


def test_an_announced_change_is_listed_without_a_call(
    sdk_server: Callable[..., SdkServer], add_upstream: Any, client: RawClient, eventually: Callable[..., Any]
) -> None:
    server = sdk_server()
    server.tools = [tool("other"), tool("change")]
    add_upstream(server, era="handshake")
    client.peer(MODERN, {"roots": {}}).result("books_change")
    eventually(lambda: UpstreamItem.objects.get(name="other").state == ItemState.CHANGED)


class TaskServer:
    """An upstream up to 2025-11-25 whose tool runs only as a task, which ends when `may_end` is set."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.methods: list[str] = []
        self.token: str | int = ""

    def answer(self, request: Received) -> Any:
        if request.method != "POST":
            return http_response(405)
        message = json.loads(request.body)
        self.methods.append(message["method"])
        if "id" not in message:
            return http_response(202)
        result = self._result(message["method"], message.get("params", {}))
        if message["method"] != "tasks/result":
            return reply(message["id"], result)
        params = {"progressToken": self.token, "progress": 1, "total": 2, "message": "Half"}
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        response = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        stream = "".join(f"data: {json.dumps(one)}\n\n" for one in (progress, response))
        return http_response(200, stream.encode(), "text/event-stream")

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                capabilities = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
                info = {"name": "tasks", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            case "tools/list":
                return {"tools": [SLOW]}
            case "tools/call":
                assert "task" in params
                self.token = params["_meta"]["progressToken"]
                return {"task": {"taskId": "t1", "status": "working"}}
            case "tasks/result":
                assert params["taskId"] == "t1"
                self.may_end.wait(30)
                return result("done")
        assert method == "tasks/cancel"
        self.may_end.set()
        return {}


@pytest.fixture
def tasks(serve: Callable[..., Service], add_upstream: Callable[..., Upstream]) -> TaskServer:
    server = TaskServer()
    add_upstream(f"{serve(server.answer).url}/mcp", era="handshake")
    return server


def test_a_tool_that_runs_only_as_a_task_does_so_in_a_task_of_the_hub(
    tasks: TaskServer, client: RawClient, eventually: Callable[..., Any]
) -> None:
    peer = client.peer(MODERN, TASKS_CAPABILITY)
    created = peer.result("books_slow")
    assert created["resultType"] == "task"
    params = {"taskId": created["taskId"]}
    assert message_of(peer.request("tasks/get", params))["result"]["status"] == "working"
    tasks.may_end.set()

    def ended() -> Any:
        task = message_of(peer.request("tasks/get", params))["result"]
        return task if task["status"] != "working" else None

    assert eventually(ended)["result"]["content"][0]["text"] == "done"
    assert error_of(client.peer(MODERN).call("books_slow"))["code"] == -32021
    # Progress has the token of the call, and comes with the request for the result.
    (progress,) = CallEvent.objects.filter(kind="progress")
    assert json.loads(progress.data)["message"] == "Half"


def test_cancelling_a_task_of_the_hub_cancels_that_of_the_upstream(
    tasks: TaskServer, client: RawClient, eventually: Callable[..., Any]
) -> None:
    peer = client.peer(MODERN, TASKS_CAPABILITY)
    created = peer.result("books_slow")
    eventually(lambda: "tasks/result" in tasks.methods)
    peer.request("tasks/cancel", {"taskId": created["taskId"]})
    eventually(lambda: "tasks/cancel" in tasks.methods)
