"""One client with several web processes: elicitation, streams and tasks continue in another process."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.services.caller import Caller
from tests.services.conftest import Hub
from tests.services.stack import eventually

WAIT_SECONDS = 20.0
META = "io.modelcontextprotocol/"
ELICITATION = {"elicitation": {}}


def events(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """The messages of a stream with their event IDs."""
    id = ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            id = value
        elif name == "data" and value:
            yield id, json.loads(value)


def called(tool: str, id: int, **arguments: Any) -> dict[str, Any]:
    meta = {"progressToken": id}
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": meta},
    }


@pytest.fixture
def eliciting(hub: Hub) -> Caller:
    """A session of a client with elicitation, created in the first process."""
    caller = Caller(hub.stack.key)
    params = {"protocolVersion": "2025-11-25", "capabilities": ELICITATION, "clientInfo": {"name": "t", "version": "1"}}
    response = caller.post(hub.urls[0], {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    caller.wire_id = response.headers["mcp-session-id"]
    return caller


@pytest.mark.parametrize("tool", ["ask", "ask_in_worker"])
def test_an_answer_reaches_the_call_whichever_process_hears_it(hub: Hub, eliciting: Caller, tool: str) -> None:
    with httpx.stream(
        "POST", hub.urls[0], json=called(tool, 5), headers=eliciting.headers, timeout=WAIT_SECONDS
    ) as response:
        stream = events(response)
        _, question = next(stream)
        assert question["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"word": "hello"}}}
        assert eliciting.post(hub.urls[1], answer).status_code == 202
        assert [message["result"]["content"][0]["text"] for _, message in stream] == ["hello"]


def test_a_broken_stream_is_taken_up_again_in_another_process(hub: Hub, caller: Caller) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    with httpx.stream(
        "POST", hub.urls[0], json=called("count", 6, n=8), headers=caller.headers, timeout=WAIT_SECONDS
    ) as response:
        for event in events(response):
            seen.append(event)
            if len(seen) == 2:
                break
    headers = {**caller.headers, "Accept": "text/event-stream", "Last-Event-ID": seen[-1][0]}
    with httpx.stream("GET", hub.urls[1], headers=headers, timeout=WAIT_SECONDS) as response:
        seen.extend(events(response))
    assert [message["params"]["progress"] for _, message in seen[:-1]] == list(range(8))
    assert seen[-1][1]["id"] == 6
    assert seen[-1][1]["result"]["content"][0]["text"] == "8"


def test_a_task_is_asked_for_answered_and_finished_in_turn(hub: Hub) -> None:
    capabilities = {**ELICITATION, "extensions": {META + "tasks": {}}}

    def modern(url: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": capabilities}
        headers = {
            "Authorization": f"Bearer {hub.stack.key}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": params.get("name") or params["taskId"],
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        result: dict[str, Any] = httpx.post(url, json=body, headers=headers, timeout=WAIT_SECONDS).json()["result"]
        return result

    first, second = hub.urls
    task = {"taskId": modern(first, "tools/call", {"name": "ask_as_task", "arguments": {}})["taskId"]}

    def status(url: str) -> str:
        return str(modern(url, "tasks/get", task)["status"])

    eventually(lambda: status(second) == "input_required")
    (key,) = modern(second, "tasks/get", task)["inputRequests"]
    responses = {key: {"action": "accept", "content": {"word": "done"}}}
    modern(second, "tasks/update", {**task, "inputResponses": responses})
    eventually(lambda: status(first) == "completed")
    assert modern(first, "tasks/get", task)["result"]["content"][0]["text"] == "done"
    assert hub.outcomes("ask_as_task") == ["ok"]


def test_two_sessions_with_the_same_request_ids_get_their_own_answers(hub: Hub) -> None:
    callers = [Caller(hub.stack.key).open(url) for url in hub.urls]
    wrong: list[str] = []

    def call(number: int) -> None:
        for turn in range(20):
            response = callers[number].post(hub.urls[turn % 2], called("echo", turn, message=f"{number}-{turn}"))
            text = response.json()["result"]["content"][0]["text"]
            if text != f"hello {number}-{turn}":
                wrong.append(text)

    threads = [threading.Thread(target=call, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not wrong
