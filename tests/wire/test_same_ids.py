"""Clients that use the same request ids, progress tokens and names each get their own responses."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from typing import Any

import pytest

from tests.wire.client import ALL_VERSIONS, HANDSHAKES, MODERN, WAIT_SECONDS, Peer, RawClient, call_params, message_of
from tools_app.calls import inputs
from tools_app.catalog import authoring
from tools_app.models import Call, CallInput, RunningCall, Tenant
from tools_app.toolkit import ToolContext, tool

pytestmark = pytest.mark.servers

ROUNDS = 12
NEWEST = HANDSHAKES[-1]
ASKABLE = {"elicitation": {}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FUNCTION_KINDS = ("async", "sync", "worker")

Offer = Callable[..., Any]


@pytest.fixture
def connect_peers(
    registries: None,
    offer: Offer,
    other_tenant: Tenant,
    make_client: Callable[[str], RawClient],
    key: str,
    other_key: str,
) -> Callable[..., list[Peer]]:
    """Connect peers of two tenants, three for each version, and offer tools in both tenants."""

    @tool
    async def tell(name: str, context: ToolContext) -> str:
        context.progress(1, message=name)
        return name

    @tool(background=True)
    def tell_later(name: str, context: ToolContext) -> str:
        context.progress(1, message=name)
        return name

    async def ask(context: ToolContext) -> str:
        return str((await context.elicit("Who?", NAME, key="who")).content["name"])

    def ask_and_wait(context: ToolContext) -> str:
        return context.wait_for(ask(context))

    tool(name="ask_async")(ask)
    tool(name="ask_sync")(ask_and_wait)
    tool(name="ask_worker", background=True)(ask_and_wait)
    names = ["tell", "tell_later", *(f"ask_{function_kind}" for function_kind in FUNCTION_KINDS)]
    offer(*names)
    authoring.add_code_tools(other_tenant, names)

    def connect(*versions: str) -> list[Peer]:
        keys = (key, key, other_key)
        return [make_client(client_key).peer(version, ASKABLE) for version in versions for client_key in keys]

    return connect


def run_concurrently(peers: list[Peer], converse: Callable[[Peer, str], None]) -> None:
    """Let all peers converse at the same time, each with a name of its own."""
    barrier = Barrier(len(peers))

    def begin(peer: Peer, name: str) -> None:
        barrier.wait(WAIT_SECONDS)
        converse(peer, name)

    with ThreadPoolExecutor(len(peers)) as threads:
        for future in [threads.submit(begin, peer, f"client {number}") for number, peer in enumerate(peers)]:
            future.result()


@pytest.mark.parametrize("name", ["tell", "tell_later"])
def test_each_of_many_clients_gets_its_own_responses_and_its_own_progress(
    connect_peers: Callable[..., list[Peer]], name: str
) -> None:
    peers = connect_peers(NEWEST, MODERN)

    def converse(peer: Peer, own_name: str) -> None:
        for round_number in range(ROUNDS):
            text = f"{own_name}, turn {round_number}"
            with peer.stream("tools/call", call_params(name, {"name": text}, {"progressToken": "t"}), id=1) as stream:
                progress, response = stream.read_to_end()
            assert progress["params"] == {"progressToken": "t", "progress": 1, "message": text}
            assert (response["id"], response["result"]["content"][0]["text"]) == (1, text)

    run_concurrently(peers, converse)
    assert Call.objects.filter(outcome="ok", event_count=1).count() == ROUNDS * len(peers)


def test_quick_answers_find_their_clients_in_every_revision(connect_peers: Callable[..., list[Peer]]) -> None:
    def converse(peer: Peer, own_name: str) -> None:
        for id in ("same", 7, "7", "same"):
            response = message_of(peer.call("tell", {"name": own_name}, id=id))
            assert (response["id"], response["result"]["content"][0]["text"]) == (id, own_name)

    run_concurrently(connect_peers(*ALL_VERSIONS), converse)


@pytest.mark.shows("base.own-request-ids")
@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_questions_of_one_name_have_ids_of_their_own_and_each_call_gets_the_answer_to_its_own(
    connect_peers: Callable[..., list[Peer]], monkeypatch: pytest.MonkeyPatch, eventually: Offer, function_kind: str
) -> None:
    monkeypatch.setattr(inputs, "POLL_SECONDS", 0.02)
    peers = connect_peers(NEWEST)
    question_ids: list[str] = []

    def converse(peer: Peer, own_name: str) -> None:
        for round_number in range(4):
            with peer.stream("tools/call", call_params(f"ask_{function_kind}"), id=1) as stream:
                question = stream.next()
                question_ids.append(question["id"])
                text = f"{own_name}, turn {round_number}"
                peer.respond(question["id"], {"action": "accept", "content": {"name": text}})
                (response,) = stream.read_to_end()
            assert (response["id"], response["result"]["content"][0]["text"]) == (1, text)

    run_concurrently(peers, converse)
    assert len(set(question_ids)) == len(question_ids) == 4 * len(peers)
    eventually(lambda: not CallInput.objects.exists())


@pytest.mark.shows("base.own-request-ids")
def test_two_calls_of_one_session_ask_under_different_ids_even_if_their_own_are_the_same(
    connect_peers: Callable[..., list[Peer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "POLL_SECONDS", 0.02)
    peer = connect_peers(NEWEST)[0]
    params = call_params("ask_async")
    with peer.stream("tools/call", params, id=1) as one, peer.stream("tools/call", params, id=1) as other:
        first, second = one.next(), other.next()
        assert first["id"] != second["id"]
        peer.respond(second["id"], {"action": "accept", "content": {"name": "second"}})
        peer.respond(first["id"], {"action": "accept", "content": {"name": "first"}})
        texts = [stream.read_to_end()[-1]["result"]["content"][0]["text"] for stream in (one, other)]
    assert texts == ["first", "second"]


def test_one_clients_cancellation_is_not_the_others(
    connect_peers: Callable[..., list[Peer]], monkeypatch: pytest.MonkeyPatch, eventually: Offer
) -> None:
    monkeypatch.setattr(inputs, "POLL_SECONDS", 0.02)
    first, same_key, other = connect_peers(NEWEST)
    for cancelling, going_on in pairwise((first, same_key, other)):
        with asking(cancelling) as cancelled_stream, asking(going_on) as open_stream:
            cancelled_stream.next()
            question = open_stream.next()
            cancelling.notify("notifications/cancelled", {"requestId": 1})
            assert all("result" not in message for message in cancelled_stream.read_to_end())
            going_on.respond(question["id"], {"action": "accept", "content": {"name": "still here"}})
            assert open_stream.read_to_end()[-1]["result"]["content"][0]["text"] == "still here"
    eventually(lambda: not RunningCall.objects.exists())
    assert sorted(Call.objects.values_list("outcome", flat=True)) == ["cancelled", "cancelled", "ok", "ok"]


def asking(peer: Peer) -> Any:
    return peer.stream("tools/call", call_params("ask_async"), id=1)
