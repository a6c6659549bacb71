"""Tasks of an upstream survive the process that polls them: another one continues, and nothing is sent twice."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import httpx
import pytest

from tests.services.conftest import Hub
from tests.services.stack import Running, eventually
from tests.upstreams.scripted import result
from tests.upstreams.task_server import TaskServer
from tests.upstreams.test_tasks import OLD, WHO, state_of
from tests.web_services import Service, serve
from tests.wire.client import MODERN, Peer, RawClient, call_params
from tests.wire.task_tools import EXTENSION

__all__ = ["serve"]

CAPABILITIES = {**EXTENSION, "elicitation": {}}
# One process is killed, one is stopped.
ENDS: list[Callable[[Running], object]] = [Running.kill, Running.terminate]
_numbers = count(1)


@pytest.fixture
def tool() -> str:
    """The name of the upstream's tool, different for each test because they share the hub."""
    return f"books{next(_numbers)}_look"


@pytest.fixture
def upstream(hub: Hub, tool: str, serve: Callable[..., Service]) -> TaskServer:
    server = TaskServer()
    prefix = tool.partition("_")[0]
    hub.stack.manage(
        *("add_upstream", "--tenant", "demo", "--name", prefix, "--prefix", prefix, "--accept"),
        *("--url", f"{serve(server.answer).url}/mcp", "--era", "modern"),
    )
    return server


@pytest.fixture
def clients(hub: Hub) -> Iterator[list[RawClient]]:
    """A client for each web process."""
    raw_clients = [RawClient(web.url, hub.stack.key) for web in hub.webs]
    yield raw_clients
    for client in raw_clients:
        client.http.close()
    if hub.webs[0].process.poll() is not None:
        hub.restart_web(0)


@pytest.mark.parametrize("end", ENDS)
def test_a_task_goes_on_in_another_process_when_its_own_ends(
    hub: Hub, tool: str, upstream: TaskServer, clients: list[RawClient], end: Callable[[Running], object]
) -> None:
    ending, other = (client.peer(MODERN, CAPABILITIES) for client in clients)
    created = eventually(lambda: found if "taskId" in (found := ending.result(tool)) else None)
    upstream.set("working", statusMessage="Half")
    eventually(lambda: state_of(other, created["taskId"])["statusMessage"] == "Half")
    end(hub.webs[0])
    upstream.set("working", statusMessage="More")
    eventually(lambda: state_of(other, created["taskId"])["statusMessage"] == "More")
    upstream.set("completed", result=result("done"))
    assert final_state(other, created["taskId"])["result"]["content"][0]["text"] == "done"
    assert hub.outcomes(tool) == ["ok"]
    assert upstream.methods.count("tools/call") == 1
    assert "tasks/cancel" not in upstream.methods


@pytest.mark.parametrize("end", ENDS)
def test_a_question_that_waits_is_answered_through_another_process_when_its_own_ends(
    hub: Hub, tool: str, upstream: TaskServer, clients: list[RawClient], end: Callable[[Running], object]
) -> None:
    ending, other = (client.peer(MODERN, CAPABILITIES) for client in clients)
    upstream.set("input_required", inputRequests={"who": WHO})
    created = eventually(lambda: found if "taskId" in (found := ending.result(tool)) else None)
    awaiting_input(other, created["taskId"])
    end(hub.webs[0])
    answer = {"action": "accept", "content": {"name": "Ada"}}

    def answered() -> dict[str, Any] | None:
        """Send the input until the task continues: the other process may request it again."""
        state = state_of(other, created["taskId"])
        if state.get("inputRequests"):
            answers = dict.fromkeys(state["inputRequests"], answer)
            other.request("tasks/update", {"taskId": created["taskId"], "inputResponses": answers})
        return state if state["status"] == "completed" else None

    state = eventually(answered)
    assert json.loads(state["result"]["content"][0]["text"]) == {"who": answer}
    assert upstream.answers == [{"who": answer}]
    assert hub.outcomes(tool) == ["ok"]
    assert upstream.methods.count("tools/call") == 1
    assert "tasks/cancel" not in upstream.methods
    eventually(lambda: hub.stack.rows("SELECT id FROM tools_app_parkedcall") == [])
    eventually(lambda: hub.stack.rows("SELECT call_id FROM tools_app_upstreamtask") == [])


def test_a_task_whose_client_waits_for_the_call_is_cancelled_once_when_its_process_is_stopped(
    hub: Hub, tool: str, upstream: TaskServer, clients: list[RawClient]
) -> None:
    peer = clients[0].peer(OLD)
    params = {**call_params(tool), "_meta": {"progressToken": 1}}
    with suppress(httpx.HTTPError), peer.stream("tools/call", params) as stream:
        stream.next()
        hub.webs[0].terminate()
    assert upstream.methods.count("tools/call") == 1
    eventually(lambda: hub.stack.rows("SELECT call_id FROM tools_app_upstreamtask") == [])
    assert upstream.methods.count("tasks/cancel") == 1
    assert hub.outcomes(tool) == ["interrupted"]


def awaiting_input(peer: Peer, id: str) -> dict[str, Any]:
    """The state of a task, once it requests input."""
    found: dict[str, Any] = eventually(lambda: state if (state := state_of(peer, id)).get("inputRequests") else None)
    return found


def final_state(peer: Peer, id: str) -> dict[str, Any]:
    """The final state of a task."""

    def state() -> dict[str, Any] | None:
        found = state_of(peer, id)
        return found if found["status"] not in ("working", "input_required") else None

    found: dict[str, Any] = eventually(state)
    return found
