"""Elicitation of an upstream: any web process accepts the response, and the call ends with the process holding it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.services.conftest import Hub
from tests.services.stack import eventually
from tests.upstreams.servers import SdkServer, sdk_server, tool
from tests.wire.client import MODERN, Peer, RawClient, call_params, message_of

__all__ = ["sdk_server"]


@pytest.fixture
def upstream(hub: Hub, sdk_server: Callable[..., SdkServer]) -> SdkServer:
    server = sdk_server()
    server.tools = [tool("ask")]
    hub.stack.manage(
        *("add_upstream", "--tenant", "demo", "--name", "books", "--prefix", "books", "--accept"),
        *("--url", server.url, "--era", "handshake"),
    )
    return server


@pytest.fixture
def peers(hub: Hub) -> Iterator[list[Peer]]:
    """One client at each web process."""
    clients = [RawClient(web.url, hub.stack.key) for web in hub.webs]
    yield [client.peer(MODERN, {"elicitation": {}}) for client in clients]
    for client in clients:
        client.http.close()


def answered(peer: Peer, pending: dict[str, Any], name: str) -> dict[str, Any]:
    answer = {"action": "accept", "content": {"name": name}}
    params = {**call_params("books_ask", {"times": 2}), "requestState": pending["requestState"]}
    params["inputResponses"] = dict.fromkeys(pending["inputRequests"], answer)
    result: dict[str, Any] = message_of(peer.request("tools/call", params))["result"]
    return result


def test_any_process_takes_the_answers_and_a_call_ends_with_its_holder(
    hub: Hub, upstream: SdkServer, peers: list[Peer]
) -> None:
    """One test, because both parts need the same hub and upstream."""
    holder, other = peers
    pending = eventually(lambda: message_of(holder.call("books_ask", {"times": 2})).get("result"))
    again = answered(other, pending, "Ada")
    assert again["resultType"] == "input_required"
    assert answered(other, again, "Bob")["content"][0]["text"] == "Ada Bob"
    assert upstream.called == ["ask"]
    assert hub.outcomes("books_ask")[-1] == "ok"

    answered_late, unattended = (holder.result("books_ask", {"times": 2}) for _ in range(2))
    hub.webs[0].kill()
    assert unattended["resultType"] == "input_required"
    lost = answered(other, answered_late, "Ada")
    assert "was lost" in lost["content"][0]["text"]
    # The call that was resumed, and the one that was not.
    eventually(lambda: hub.outcomes("books_ask").count("lost") == 2)
    eventually(lambda: hub.stack.rows("SELECT id FROM tools_app_parkedcall") == [])
    assert upstream.called == ["ask"] * 3
    hub.restart_web(0)
