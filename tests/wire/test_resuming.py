"""Streams that break and are resumed after their last event (2025-11-25, transports, §Resumability)."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from tests.wire.client import (
    ACCEPT_BOTH,
    EACH_HANDSHAKE,
    HANDSHAKES,
    MODERN,
    SESSION,
    WAIT_SECONDS,
    Peer,
    RawClient,
    ReceivedMessage,
    Stream,
    call_params,
    rpc,
)
from tools_app.calls.background import update_reader
from tools_app.catalog import authoring
from tools_app.models import Call, CallEvent, RunningCall, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import ProtocolError, ToolContext, tool
from tools_app.transport import responses

pytestmark = pytest.mark.servers

NEWEST = HANDSHAKES[-1]
FUNCTION_KINDS = ("async", "sync", "worker")
TOKEN = {"progressToken": "t"}
LAST_EVENT = "Last-Event-ID"
CHANGED = "notifications/tools/list_changed"
GARBAGE = [
    "",
    "nonsense",
    "/1",
    "00000000-0000-7000-8000-000000000000/1",
    "{call}",
    "{call}/",
    "{call}/x",
    "{call}/-1",
    "{call}/1.5",
    "{call}/99999999999999999999",
    "{call}/1/2",
    "x{call}/1",
]

Offer = Callable[..., Any]


class Gate:
    """Blocks a tool in the middle until a test opens it."""

    def __init__(self) -> None:
        self._opened = Event()

    def open(self) -> None:
        self._opened.set()

    def hold(self) -> None:
        assert self._opened.wait(WAIT_SECONDS), "nobody opened the gate"

    async def hold_here(self) -> None:
        await asyncio.to_thread(self.hold)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def offer_steps(registries: None, offer: Offer, gate: Gate) -> Callable[..., None]:
    """Offer a tool "steps" of one of FUNCTION_KINDS: three steps, a gate, two more, and a result or an error."""

    def finished(context: ToolContext, *, fails: bool) -> str:
        context.progress(4)
        context.progress(5)
        if fails:
            raise ProtocolError("it broke", -31000, {"step": 5})
        return "done"

    def add(function_kind: str) -> None:
        if function_kind == "async":

            @tool(name="steps")
            async def steps_here(context: ToolContext, fails: bool = False) -> str:
                for step in (1, 2, 3):
                    context.progress(step)
                await gate.hold_here()
                return finished(context, fails=fails)
        else:

            @tool(name="steps", background=function_kind == "worker")
            def steps(context: ToolContext, fails: bool = False) -> str:
                for step in (1, 2, 3):
                    context.progress(step)
                gate.hold()
                return finished(context, fails=fails)

        offer("steps")

    return add


def steps_of(messages: list[ReceivedMessage]) -> list[int]:
    return [item.message["params"]["progress"] for item in messages if "method" in item.message]


def resume(peer: Peer, last_event: str) -> list[ReceivedMessage]:
    """All messages of a resumed stream."""
    with peer.listening({LAST_EVENT: last_event}) as stream:
        assert stream.response.status_code == 200
        return list(stream)


def has_only_changes(stream: Stream, offer: Offer) -> bool:
    """Whether the next message of a stream is about a change."""
    offer("echo")
    return stream.next()["method"] == CHANGED


def finished_call(peer: Peer, gate: Gate, **arguments: Any) -> list[ReceivedMessage]:
    """All messages of a finished call of "steps"."""
    gate.open()
    with peer.stream("tools/call", call_params("steps", arguments, TOKEN), id="s") as stream:
        return list(stream)


# --- Ids -----------------------------------------------------------------------------------------------------------


def test_a_stream_begins_with_an_id_and_a_retry_delay_since_2025_11_25(
    offer_steps: Callable[..., None], gate: Gate, session: Peer
) -> None:
    offer_steps("async")
    gate.open()
    with session.stream("tools/call", call_params("steps", meta=TOKEN)) as stream:
        first = stream.next_event()
        assert first.id
        if session.version >= "2025-11-25":
            assert first.data == ""
            assert int(first.fields["retry"]) > 0
            assert set(first.fields) == {"id", "retry", "data"}
            first = stream.next_event()
        assert json.loads(first.data)["params"]["progress"] == 1


def test_streams_of_the_modern_era_have_no_ids_and_cannot_be_taken_up_again(
    offer_steps: Callable[..., None], gate: Gate, client: RawClient
) -> None:
    offer_steps("async")
    received = finished_call(client.peer(MODERN), gate)
    assert steps_of(received) == [1, 2, 3, 4, 5]
    assert {message.id for message in received} == {""}
    call = Call.objects.get()
    fields = client.headers({"MCP-Protocol-Version": MODERN, LAST_EVENT: f"{call.pk}/1", "Content-Type": None})
    assert client.http.get(client.path, headers=fields).status_code == 405


@pytest.mark.shows("streamable-http.event-ids")
def test_no_two_events_of_a_session_have_the_same_id(
    offer_steps: Callable[..., None], offer: Offer, gate: Gate, client: RawClient
) -> None:
    offer_steps("async")
    peer = client.handshake(NEWEST)
    gate.open()
    with peer.listening() as listening:
        ids = []
        for _ in range(2):
            with peer.stream("tools/call", call_params("steps", meta=TOKEN), id="same") as stream:
                primer = stream.next_event()
                ids += [primer.id, *(item.id for item in stream if "method" in item.message)]
        offer("echo")
        ids += [id for id in [listening.next_event().id] if id]
    assert len(ids) >= 12
    assert all(ids)
    assert len(set(ids)) == len(ids)


# --- Resuming ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
@pytest.mark.parametrize("version", EACH_HANDSHAKE)
def test_a_client_that_lost_its_stream_comes_back_while_the_call_still_runs(
    offer_steps: Callable[..., None], gate: Gate, client: RawClient, version: str, function_kind: str
) -> None:
    offer_steps(function_kind)
    peer = client.handshake(version)
    with peer.stream("tools/call", call_params("steps", meta=TOKEN), id="s") as stream:
        lost_at = next(iter(stream))
        assert lost_at.message["params"]["progress"] == 1
    assert RunningCall.objects.exists()
    with peer.listening({LAST_EVENT: lost_at.id}) as stream:
        again = [next(iter(stream)), next(iter(stream))]
        gate.open()
        again += list(stream)
    assert steps_of(again) == [2, 3, 4, 5]
    assert again[-1].message["id"] == "s"
    assert again[-1].message["result"]["content"] == [{"type": "text", "text": "done"}]
    assert Call.objects.get().outcome == "ok"


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_after_the_call_ended_each_event_brings_what_came_after_it_and_the_answer(
    offer_steps: Callable[..., None], gate: Gate, client: RawClient, function_kind: str
) -> None:
    offer_steps(function_kind)
    peer = client.handshake(NEWEST)
    *events, answer = finished_call(peer, gate)
    assert steps_of(events) == [1, 2, 3, 4, 5]
    for position, event in enumerate(events):
        again = resume(peer, event.id)
        assert [(item.id, item.message) for item in again[:-1]] == [
            (item.id, item.message) for item in events[position + 1 :]
        ]
        assert again[-1].message == answer.message


def test_a_stream_that_breaks_again_and_again_loses_and_repeats_nothing(
    offer_steps: Callable[..., None], gate: Gate, client: RawClient
) -> None:
    offer_steps("worker")
    peer = client.handshake(NEWEST)
    with peer.stream("tools/call", call_params("steps", meta=TOKEN), id="s") as stream:
        last = stream.next_event().id
    received: list[ReceivedMessage] = []
    while not (received and "result" in received[-1].message):
        if len(received) == 3:
            gate.open()
        with peer.listening({LAST_EVENT: last}) as stream:
            received.append(next(iter(stream)))
            last = received[-1].id
    assert steps_of(received) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_an_answer_that_was_an_error_is_one_again(
    offer_steps: Callable[..., None], gate: Gate, client: RawClient, function_kind: str
) -> None:
    offer_steps(function_kind)
    peer = client.handshake(NEWEST)
    *events, answer = finished_call(peer, gate, fails=True)
    assert answer.message["error"] == {"code": -31000, "message": "it broke", "data": {"step": 5}}
    assert resume(peer, events[-1].id)[-1].message == answer.message


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_an_event_just_before_the_end_of_a_call_is_enough_to_resume_for_the_answer(
    registries: None, offer: Offer, client: RawClient, version: str
) -> None:
    @tool
    async def brief(context: ToolContext) -> str:
        context.progress(1)
        return "done"

    offer("brief")
    peer = client.handshake(version)
    with peer.stream("tools/call", call_params("brief", meta=TOKEN)) as stream:
        progress, answer = list(stream)
    (again,) = resume(peer, progress.id)
    assert again.message == answer.message


def test_a_call_that_was_cancelled_has_no_answer_to_come_back_for(
    offer_steps: Callable[..., None], client: RawClient, eventually: Offer
) -> None:
    offer_steps("async")
    peer = client.handshake(NEWEST)
    with peer.stream("tools/call", call_params("steps", meta=TOKEN), id="s") as stream:
        last = next(iter(stream)).id
    peer.notify("notifications/cancelled", {"requestId": "s"})
    eventually(Call.objects.exists)
    again = resume(peer, last)
    assert steps_of(again) == [2, 3]
    assert len(again) == 2


def test_a_long_past_is_replayed_whole_and_in_order(
    registries: None, offer: Offer, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_reader, "MAX_EVENTS", 7)
    monkeypatch.setattr(responses, "MAX_MESSAGES", 3)

    @tool(background=True)
    def chatter(context: ToolContext) -> str:
        for step in range(50):
            context.progress(step)
        return "done"

    offer("chatter")
    peer = client.handshake(NEWEST)
    with peer.stream("tools/call", call_params("chatter", meta=TOKEN)) as stream:
        primer = stream.next_event()
        stream.read_to_end()
    again = resume(peer, primer.id)
    assert steps_of(again) == list(range(50))
    assert again[-1].message["result"]["content"][0]["text"] == "done"


def test_messages_of_many_threads_arrive_in_the_order_of_their_ids(
    registries: None, offer: Offer, client: RawClient
) -> None:
    @tool
    async def crowd(context: ToolContext) -> str:
        with ThreadPoolExecutor(8) as threads:
            futures = [
                asyncio.get_running_loop().run_in_executor(threads, context.log, "error", n, "crowd") for n in range(80)
            ]
            context.log("error", "from here")
            await asyncio.gather(*futures)
        return "done"

    offer("crowd")
    peer = client.handshake(NEWEST)
    peer.request("logging/setLevel", {"level": "debug"})
    with peer.stream("tools/call", call_params("crowd")) as stream:
        received = [message for message in stream if "method" in message.message]
    (call_id,) = {message.id.rpartition("/")[0] for message in received}
    numbers = [int(message.id.rpartition("/")[2]) for message in received]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == CallEvent.objects.filter(call_id=call_id).count() == 81


# --- Whose stream it is --------------------------------------------------------------------------------------------


@pytest.mark.shows("streamable-http.event-ids-name-streams", "streamable-http.replay")
def test_an_event_brings_back_its_own_stream_and_nothing_of_another(
    offer_steps: Callable[..., None], gate: Gate, client: RawClient
) -> None:
    offer_steps("async")
    peer = client.handshake(NEWEST)
    gate.open()
    streams = {}
    for token in ("one", "two"):
        with peer.stream("tools/call", call_params("steps", meta={"progressToken": token}), id=token) as stream:
            streams[token] = stream.next_event().id
            stream.read_to_end()
    for token, primer in streams.items():
        again = resume(peer, primer)
        assert {item.message["params"]["progressToken"] for item in again[:-1]} == {token}
        assert again[-1].message["id"] == token


@pytest.mark.shows("streamable-http.replay")
def test_events_of_others_bring_nothing_of_their_streams(
    offer_steps: Callable[..., None],
    offer: Offer,
    gate: Gate,
    client: RawClient,
    tenant: Tenant,
    make_client: Callable[[str], RawClient],
    other_key: str,
) -> None:
    offer_steps("async")
    peer = client.handshake(NEWEST)
    foreign = finished_call(peer, gate)[0].id
    finished_call(client.peer(MODERN), gate)
    (modern,) = Call.objects.filter(session=None)
    colleague = make_client(keys.issue(tenant, "colleague")[1])
    places = [
        (client.handshake(NEWEST), foreign),
        (colleague.handshake(NEWEST), foreign),
        (peer, f"{modern.pk}/0"),
    ]
    for other, last_event in places:
        with other.listening({LAST_EVENT: last_event}) as stream:
            (echo,) = offer("echo")
            assert stream.next()["method"] == CHANGED
            authoring.delete(echo)
            assert stream.next()["method"] == CHANGED  # the next stream begins without it
    stranger = Peer(make_client(other_key), NEWEST, peer.session_id)
    for thief in (stranger, Peer(colleague, NEWEST, peer.session_id)):
        with thief.listening({LAST_EVENT: foreign}) as stream:
            assert stream.response.status_code == 404


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_id_that_is_none_opens_a_stream_of_changes(
    offer_steps: Callable[..., None], offer: Offer, gate: Gate, client: RawClient, garbage: str
) -> None:
    offer_steps("async")
    peer = client.handshake(NEWEST)
    finished_call(peer, gate)
    last_event = garbage.replace("{call}", str(Call.objects.get().pk))
    with peer.listening({LAST_EVENT: last_event}) as stream:
        assert stream.response.status_code == 200
        assert has_only_changes(stream, offer)


def test_a_stream_of_several_answers_cannot_be_taken_up_again(
    offer_steps: Callable[..., None], gate: Gate, client: RawClient
) -> None:
    offer_steps("async")
    peer = client.handshake("2025-03-26")
    gate.open()
    batch = [rpc("tools/call", call_params("steps", meta={"progressToken": id}), id=id) for id in ("a", "b")]
    fields = client.headers(peer.headers())
    with client.http.stream("POST", client.path, content=json.dumps(batch).encode(), headers=fields) as response:
        events = []
        stream = Stream(response)
        while not events or not events[-1].data.startswith("["):
            events.append(stream.next_event())
    assert len(events) == 11
    assert {event.id for event in events} == {""}
    assert {answer["id"] for answer in json.loads(events[-1].data)} == {"a", "b"}


# --- The stream of changes beside it -------------------------------------------------------------------------------


@pytest.mark.shows(
    "streamable-http.get-stream",
    "streamable-http.get-stream-no-answers",
    "streamable-http.get-stream-unrelated",
    "streamable-http.one-address",
)
def test_the_stream_of_changes_has_nothing_of_a_call_that_runs_beside_it(
    offer_steps: Callable[..., None], offer: Offer, gate: Gate, session: Peer
) -> None:
    offer_steps("async")
    with session.listening() as changes:
        assert changes.response.headers["content-type"] == "text/event-stream"
        received = finished_call(session, gate)
        assert steps_of(received) == [1, 2, 3, 4, 5]
        assert received[-1].message["id"] == "s"
        assert has_only_changes(changes, offer)
        session.delete()
        assert changes.read_to_end() == []


@pytest.mark.shows("streamable-http.one-stream")
def test_a_change_is_notified_on_one_of_a_sessions_streams(offer: Offer, session: Peer) -> None:
    with session.listening() as first, session.listening() as second:
        offer("echo")
        assert second.next()["method"] == CHANGED
        session.delete()
        assert (first.read_to_end(), second.read_to_end()) == ([], [])


def test_a_stream_needs_a_session(client: RawClient) -> None:
    fields = client.headers({"Accept": ACCEPT_BOTH, SESSION: None, LAST_EVENT: "x/1"})
    assert client.http.get(client.path, headers=fields).status_code == 400
