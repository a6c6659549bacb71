"""Questions of upstreams to clients, in each era of both: asked once, answered once, and the call never runs again."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.upstreams.servers import SdkServer, tool
from tests.wire.client import MODERN, Peer, RawClient, call_params, message_of
from tools_app.models import Call, Outcome, ParkedCall

FORMS = {"elicitation": {}}
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
OLD = "2025-11-25"
MODEL = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"}
ANSWERS = {
    "sampling/createMessage": MODEL,
    "roots/list": {"roots": [{"uri": "file:///home"}]},
}


@pytest.fixture(params=("handshake", "modern"))
def upstream(request: pytest.FixtureRequest, sdk_server: Callable[..., SdkServer], add: Any) -> SdkServer:
    """An upstream of each era in turn, whose tools ask."""
    return asking(sdk_server, add, request.param)


def asking(sdk_server: Callable[..., SdkServer], add: Any, era: str) -> SdkServer:
    server = sdk_server()
    server.tools = [tool("ask"), tool("several")]
    server.era = add(server, era=era).status.era
    assert server.era == era
    return server


def named(text: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": text}}


def answer_of(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question of `several`."""
    return ANSWERS.get(request["method"], {"action": "accept"})


def retried(peer: Peer, name: str, asked: dict[str, Any], answers: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    params = {**call_params(name, arguments), "inputResponses": answers, "requestState": asked["requestState"]}
    message: dict[str, Any] = message_of(peer.request("tools/call", params))
    return message


def finished(peer: Peer, name: str, answer: Callable[[dict[str, Any]], Any], **arguments: Any) -> dict[str, Any]:
    """Call a tool, answer all that it asks as the era of the client demands, and return its result."""
    if peer.is_modern:
        result = peer.result(name, arguments)
        while result["resultType"] == "input_required":
            answers = {key: answer(request) for key, request in result["inputRequests"].items()}
            result = retried(peer, name, result, answers, **arguments)["result"]
        return result
    with peer.stream("tools/call", call_params(name, arguments)) as stream:
        while True:
            message = stream.next()
            if "result" in message:
                final: dict[str, Any] = message["result"]
                return final
            if "id" in message:
                assert peer.respond(message["id"], answer(message)).status_code == 202


def said(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("version", [OLD, MODERN])
def test_a_form_is_asked_in_every_cell_of_eras(upstream: SdkServer, client: RawClient, version: str) -> None:
    """Three questions, one after the other."""
    names = iter(("Ada", "Bob", "Cid"))
    peer = client.peer(version, FORMS)
    result = finished(peer, "books_ask", lambda _request: named(next(names)), times=3)
    assert said(result) == "Ada Bob Cid"
    # A modern upstream is called again with each answer, as its revision demands; an older one is called once.
    assert upstream.called.count("ask") == (4 if upstream.era == "modern" else 1)
    assert not ParkedCall.objects.exists()
    assert Call.objects.filter(tool_name="books_ask", outcome=Outcome.OK).count() == 1


@pytest.mark.parametrize("version", [OLD, MODERN])
def test_models_pages_and_roots_are_asked_in_every_cell_of_eras(
    upstream: SdkServer, client: RawClient, version: str
) -> None:
    result = finished(client.peer(version, ALL), "books_several", answer_of)
    assert said(result) == "Hi accept file:///home"
