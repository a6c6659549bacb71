"""Clients that know nothing of each other use the same request ids, progress tokens and names: each gets its own."""

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

ROUNDS = 12
NEWEST = HANDSHAKES[-1]
ASKABLE = {"elicitation": {}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
WAYS = ("async", "sync", "worker")

Offer = Callable[..., Any]


@pytest.fixture
def everybody(
    registries: None,
    offer: Offer,
    other_tenant: Tenant,
    make_client: Callable[[str], RawClient],
    key: str,
    other_key: str,
) -> Callable[..., list[Peer]]:
    """Clients of two keys, two of each revision asked for, and tools for both of their tenants."""

    @tool
    async def tell(name: str, context: ToolContext) -> str:
        context.progress(1, message=name)
        return name

    @tool(background=True)
    def tell_later(name: str, context: ToolContext) -> str:
        context.progress(1, message=name)
        return name

    async def asked(context: ToolContext) -> str:
        return str((await context.elicit("Who?", NAME, key="who")).content["name"])

    def ask_and_wait(context: ToolContext) -> str:
        return context.wait_for(asked(context))

    tool(name="ask_async")(asked)
    tool(name="ask_sync")(ask_and_wait)
    tool(name="ask_worker", background=True)(ask_and_wait)
    names = ["tell", "tell_later", *(f"ask_{way}" for way in WAYS)]
    offer(*names)
    authoring.add_code_tools(other_tenant, names)

    def come(*versions: str) -> list[Peer]:
        keys = (key, key, other_key)
        return [make_client(one).peer(version, ASKABLE) for version in versions for one in keys]

    return come


def together(peers: list[Peer], talk: Callable[[Peer, str], None]) -> None:
    """Let all peers talk at the same time, each under a name of its own."""
    barrier = Barrier(len(peers))

    def begin(peer: Peer, name: str) -> None:
        barrier.wait(WAIT_SECONDS)
        talk(peer, name)

    with ThreadPoolExecutor(len(peers)) as threads:
        for talking in [threads.submit(begin, peer, f"client {number}") for number, peer in enumerate(peers)]:
            talking.result()


@pytest.mark.parametrize("name", ["tell", "tell_later"])
def test_each_of_many_clients_hears_its_own_answers_and_its_own_progress(
    everybody: Callable[..., list[Peer]], name: str
) -> None:
    peers = everybody(NEWEST, MODERN)

    def talk(peer: Peer, own: str) -> None:
        for turn in range(ROUNDS):
            said = f"{own}, turn {turn}"
            with peer.stream("tools/call", call_params(name, {"name": said}, {"progressToken": "t"}), id=1) as stream:
                told, answer = stream.read_to_end()
            assert told["params"] == {"progressToken": "t", "progress": 1, "message": said}
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (1, said)

    together(peers, talk)
    assert Call.objects.filter(outcome="ok", event_count=1).count() == ROUNDS * len(peers)


def test_quick_answers_find_their_clients_in_every_revision(everybody: Callable[..., list[Peer]]) -> None:
    def talk(peer: Peer, own: str) -> None:
        for id in ("same", 7, "7", "same"):
            answer = message_of(peer.call("tell", {"name": own}, id=id))
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (id, own)

    together(everybody(*ALL_VERSIONS), talk)


@pytest.mark.shows("base.own-request-ids")
@pytest.mark.parametrize("way", WAYS)
def test_questions_of_one_name_have_ids_of_their_own_and_each_call_gets_the_answer_to_its_own(
    everybody: Callable[..., list[Peer]], monkeypatch: pytest.MonkeyPatch, eventually: Offer, way: str
) -> None:
    monkeypatch.setattr(inputs, "POLL_SECONDS", 0.02)
    peers = everybody(NEWEST)
    asked: list[str] = []

    def talk(peer: Peer, own: str) -> None:
        for turn in range(4):
            with peer.stream("tools/call", call_params(f"ask_{way}"), id=1) as stream:
                question = stream.next()
                asked.append(question["id"])
                said = f"{own}, turn {turn}"
                peer.respond(question["id"], {"action": "accept", "content": {"name": said}})
                (answer,) = stream.read_to_end()
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (1, said)

    together(peers, talk)
    assert len(set(asked)) == len(asked) == 4 * len(peers)
    eventually(lambda: not CallInput.objects.exists())


@pytest.mark.shows("base.own-request-ids")
def test_two_calls_of_one_session_ask_under_different_ids_even_if_their_own_are_the_same(
    everybody: Callable[..., list[Peer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "POLL_SECONDS", 0.02)
    peer = everybody(NEWEST)[0]
    params = call_params("ask_async")
    with peer.stream("tools/call", params, id=1) as one, peer.stream("tools/call", params, id=1) as other:
        first, second = one.next(), other.next()
        assert first["id"] != second["id"]
        peer.respond(second["id"], {"action": "accept", "content": {"name": "second"}})
        peer.respond(first["id"], {"action": "accept", "content": {"name": "first"}})
        texts = [stream.read_to_end()[-1]["result"]["content"][0]["text"] for stream in (one, other)]
    assert texts == ["first", "second"]


def test_one_clients_cancellation_is_not_the_others(
    everybody: Callable[..., list[Peer]], monkeypatch: pytest.MonkeyPatch, eventually: Offer
) -> None:
    monkeypatch.setattr(inputs, "POLL_SECONDS", 0.02)
    own, same_key, other = everybody(NEWEST)
    for cancelling, going_on in pairwise((own, same_key, other)):
        with asking(cancelling) as one, asking(going_on) as two:
            one.next()
            question = two.next()
            cancelling.notify("notifications/cancelled", {"requestId": 1})
            assert all("result" not in message for message in one.read_to_end())
            going_on.respond(question["id"], {"action": "accept", "content": {"name": "still here"}})
            assert two.read_to_end()[-1]["result"]["content"][0]["text"] == "still here"
    eventually(lambda: not RunningCall.objects.exists())
    assert sorted(Call.objects.values_list("outcome", flat=True)) == ["cancelled", "cancelled", "ok", "ok"]


def asking(peer: Peer) -> Any:
    return peer.stream("tools/call", call_params("ask_async"), id=1)
