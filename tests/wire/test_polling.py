"""Streams that a call closes so that its client polls for the rest (2025-11-25, transports; SEP-1699)."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from tests.wire.client import WAIT_SECONDS, Peer, RawClient, ReceivedMessage, call_params, message_of, text_of
from tools_app.models import Call, CallEvent
from tools_app.toolkit import ToolContext, tool

pytestmark = pytest.mark.servers

NEWEST = "2025-11-25"
FUNCTION_KINDS = ("async", "sync", "worker")
TOKEN = {"progressToken": "t"}
LAST_EVENT = "Last-Event-ID"

Offer = Callable[..., Any]


@pytest.fixture
def came_back() -> Iterator[Event]:
    """The event that a tool waits for after it closed its stream."""
    event = Event()
    yield event
    event.set()


@pytest.fixture
def offer_pausing(registries: None, offer: Offer, came_back: Event) -> Callable[[str], None]:
    """Offer a tool "pausing" of one of FUNCTION_KINDS: it reports 1, closes its stream, waits and reports 2."""

    def add(function_kind: str) -> None:
        if function_kind == "async":

            @tool(name="pausing")
            async def pausing_here(context: ToolContext) -> str:
                context.progress(1)
                context.close_stream()
                await asyncio.to_thread(came_back.wait, WAIT_SECONDS)
                context.progress(2)
                return "done"
        else:

            @tool(name="pausing", background=function_kind == "worker")
            def pausing(context: ToolContext) -> str:
                context.progress(1)
                context.close_stream()
                assert came_back.wait(WAIT_SECONDS)
                context.progress(2)
                return "done"

        offer("pausing")

    return add


def rest_of(peer: Peer, last_event: str) -> list[ReceivedMessage]:
    with peer.listening({LAST_EVENT: last_event}) as stream:
        return list(stream)


def progress_values(messages: list[ReceivedMessage]) -> list[int]:
    return [message.message["params"]["progress"] for message in messages if "method" in message.message]


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_a_call_ends_its_stream_and_its_client_comes_back_for_the_rest(
    offer_pausing: Callable[[str], None], came_back: Event, client: RawClient, function_kind: str
) -> None:
    offer_pausing(function_kind)
    peer = client.handshake(NEWEST)
    with peer.stream("tools/call", call_params("pausing", meta=TOKEN), id=7) as stream:
        primer = stream.next_event()
        received = list(stream)
    assert int(primer.fields["retry"]) > 0
    assert progress_values(received) == [1]
    assert not Call.objects.exists()
    with peer.listening({LAST_EVENT: received[-1].id}) as stream:
        came_back.set()
        rest = list(stream)
    assert progress_values(rest) == [2]
    assert rest[-1].message["id"] == 7
    assert rest[-1].message["result"]["content"] == [{"type": "text", "text": "done"}]
    kinds = CallEvent.objects.order_by("sequence").values_list("kind", flat=True)
    assert (Call.objects.get().outcome, list(kinds)) == ("ok", ["progress", "pause", "progress"])


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_a_client_that_comes_back_late_finds_the_answer(
    offer_pausing: Callable[[str], None], came_back: Event, client: RawClient, eventually: Offer, function_kind: str
) -> None:
    offer_pausing(function_kind)
    came_back.set()
    peer = client.handshake(NEWEST)
    with peer.stream("tools/call", call_params("pausing", meta=TOKEN)) as stream:
        primer = stream.next_event()
        stream.read_to_end()
    eventually(Call.objects.exists)
    rest = rest_of(peer, primer.id)
    assert progress_values(rest) == [1, 2]
    assert rest[-1].message["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("background", [False, True])
def test_a_call_that_closes_its_stream_and_is_done_at_once_is_answered_all_the_same(
    registries: None, offer: Offer, client: RawClient, background: bool
) -> None:
    @tool(background=background)
    async def hasty(context: ToolContext) -> str:
        context.close_stream()
        return "done"

    offer("hasty")
    peer = client.handshake(NEWEST)
    for id in range(5):
        with peer.stream("tools/call", call_params("hasty"), id=id) as stream:
            if stream.response.headers["content-type"] == "application/json":
                stream.response.read()
                answer = message_of(stream.response)
            else:
                primer = stream.next_event()
                answers = stream.read_to_end() or [received.message for received in rest_of(peer, primer.id)]
                (answer,) = answers
        assert answer["id"] == id
        assert answer["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2026-07-28"])
def test_a_client_without_an_event_id_keeps_its_stream(
    offer_pausing: Callable[[str], None], came_back: Event, client: RawClient, version: str
) -> None:
    offer_pausing("async")
    with client.peer(version).stream("tools/call", call_params("pausing", meta=TOKEN), id=7) as stream:
        assert stream.next()["params"]["progress"] == 1
        came_back.set()
        rest = stream.read_to_end()
    assert [message.get("id") for message in rest] == [None, 7]
    assert rest[-1]["result"]["content"][0]["text"] == "done"


def test_a_client_that_takes_one_json_body_waits_for_it(
    offer_pausing: Callable[[str], None], came_back: Event, client: RawClient, eventually: Offer
) -> None:
    offer_pausing("async")
    peer = client.handshake(NEWEST)
    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(peer.call, "pausing", meta=TOKEN, headers={"Accept": "application/json"})
        eventually(CallEvent.objects.filter(kind="pause").exists)
        peer.request("ping")
        assert not calling.done()
        came_back.set()
        response = calling.result()
    assert response.headers["content-type"] == "application/json"
    assert text_of(response) == "done"


def test_a_call_that_closes_its_stream_can_still_be_cancelled(
    offer_pausing: Callable[[str], None], client: RawClient, eventually: Offer
) -> None:
    offer_pausing("async")
    peer = client.handshake(NEWEST)
    with peer.stream("tools/call", call_params("pausing", meta=TOKEN), id=7) as stream:
        last = list(stream)[-1]
    peer.notify("notifications/cancelled", {"requestId": 7})
    assert eventually(Call.objects.first).outcome == "cancelled"
    assert rest_of(peer, last.id) == []
