"""Calls of tools of upstreams, as a client of the hub sees them, in each revision of both."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.upstreams.servers import SdkServer
from tests.wire.client import Peer, RawClient, message_of
from tools_app.models import Call, Outcome

ERAS = ("handshake", "modern")


@pytest.fixture(params=ERAS)
def upstream(request: pytest.FixtureRequest, sdk_server: Callable[..., SdkServer], add_upstream: Any) -> SdkServer:
    """An upstream of each era in turn, with everything accepted."""
    server = sdk_server()
    assert add_upstream(server, era=request.param).status.era == request.param
    return server


@pytest.fixture(params=("2025-06-18", "2026-07-28"))
def peer(request: pytest.FixtureRequest, client: RawClient) -> Peer:
    return client.peer(request.param)


def test_a_call_passes_through_with_its_structured_result(upstream: SdkServer, peer: Peer) -> None:
    listed = {one["name"]: one for one in message_of(peer.request("tools/list"))["result"]["tools"]}
    assert listed["books_echo"]["annotations"] == {"readOnlyHint": True}
    assert listed["books_echo"]["_meta"] == {"example.com/shown": "yes"}
    result = peer.result("books_echo", {"text": "hello"})
    assert result["content"] == [{"type": "text", "text": "hello"}]
    assert result["structuredContent"] == {"text": "hello"}
    call = Call.objects.get(tool_name="books_echo")
    assert (call.outcome, call.tool_revision) == (Outcome.OK, 1)


def test_progress_comes_before_the_result(upstream: SdkServer, peer: Peer) -> None:
    with peer.stream("tools/call", {"name": "books_count", "arguments": {}, "_meta": {"progressToken": "p"}}) as stream:
        messages = [
            message
            for message in stream.read_to_end()
            if "method" not in message or message["method"] == "notifications/progress"
        ]
    progress = [(message["params"]["progress"], message["params"]["message"]) for message in messages[:-1]]
    assert progress == [(1, "Step 1"), (2, "Step 2"), (3, "Step 3")]
    assert messages[-1]["result"]["content"][0]["text"] == "3"


def test_an_error_of_the_tool_is_the_result(upstream: SdkServer, peer: Peer) -> None:
    result = peer.result("books_fail")
    assert result["isError"]
    assert result["content"][0]["text"] == "No such book."
    assert Call.objects.get(tool_name="books_fail").outcome == Outcome.TOOL_ERROR
