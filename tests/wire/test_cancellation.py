"""Cancellation of running calls (cancellation)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.wire.client import HANDSHAKES, Peer, RawClient, call_params, text_of
from tools_app.calls import run
from tools_app.models import Call, CallInput, RunningCall
from tools_app.toolkit import ToolContext, tool

pytestmark = pytest.mark.servers

LONG = call_params("count", {"n": 600}, {"progressToken": "t"})


@pytest.fixture(autouse=True)
def demo(offer: Callable[..., object]) -> None:
    offer("count")


@pytest.mark.shows("cancellation.stops", "cancellation.reason-logged")
def test_the_notification_stops_the_call_and_is_recorded(session: Peer, eventually: Callable[..., Any]) -> None:
    with session.stream("tools/call", LONG, id="long") as stream:
        assert stream.next()["method"] == "notifications/progress"
        assert session.notify("notifications/cancelled", {"requestId": "long", "reason": "enough"}).status_code == 202
        assert all("result" not in message for message in stream.read_to_end())
    call = eventually(Call.objects.first)
    assert (call.outcome, call.cause) == ("cancelled", "cancelled by its client: enough")
    assert 0 < call.event_count < 600
    assert not RunningCall.objects.exists()


@pytest.mark.shows("streamable-http.drop-is-cancellation")
def test_a_stream_that_is_closed_cancels_the_call_of_the_modern_era(
    client: RawClient, eventually: Callable[..., Any]
) -> None:
    with client.peer("2026-07-28").stream("tools/call", LONG) as stream:
        stream.next()
    assert eventually(Call.objects.first).outcome == "cancelled"


@pytest.mark.shows("streamable-http.drop-is-no-cancellation")
def test_a_stream_that_drops_cancels_nothing_in_the_handshake_era(
    session: Peer, eventually: Callable[..., Any]
) -> None:
    with session.stream("tools/call", call_params("count", {"n": 8}, {"progressToken": "t"})) as stream:
        stream.next()
    call = eventually(Call.objects.first)
    assert (call.outcome, call.event_count) == ("ok", 8)


@pytest.mark.shows("cancellation.invalid-ignored")
@pytest.mark.parametrize("request_id", ["other", 1, None, True, [], {"a": 1}])
def test_a_notification_about_another_request_is_ignored(client: RawClient, request_id: object) -> None:
    session = client.handshake()
    with session.stream("tools/call", call_params("count", {"n": 3}, {"progressToken": "t"}), id="1") as stream:
        stream.next()
        assert session.notify("notifications/cancelled", {"requestId": request_id}).status_code == 202
        assert stream.read_to_end()[-1]["result"]["isError"] is False


def test_another_session_cannot_cancel_the_call(client: RawClient) -> None:
    own, other = client.handshake(), client.handshake()
    with own.stream("tools/call", call_params("count", {"n": 3}, {"progressToken": "t"}), id=1) as stream:
        stream.next()
        assert other.notify("notifications/cancelled", {"requestId": 1}).status_code == 202
        assert stream.read_to_end()[-1]["result"]["isError"] is False


def test_a_call_can_follow_one_that_was_cancelled_under_the_same_id(client: RawClient) -> None:
    session = client.handshake()
    with session.stream("tools/call", LONG, id=1) as stream:
        stream.next()
        session.notify("notifications/cancelled", {"requestId": 1})
        stream.read_to_end()
    assert text_of(session.call("count", {"n": 1}, id=1)) == "1"


@pytest.fixture
def held(registries: None, offer: Callable[..., object]) -> None:
    """Tools that run until they are cancelled, and one that returns at once."""

    @tool(name="inline")
    async def here(context: ToolContext) -> None:
        context.progress(1)
        await asyncio.Event().wait()

    @tool(name="worker", background=True)
    def there(context: ToolContext) -> None:
        context.progress(1)
        context.sleep(60.0)

    @tool
    async def instant() -> str:
        return "done"

    offer("inline", "worker", "instant")


def cancelled(session: Peer, name: str, reason: object) -> None:
    """Call a tool, cancel it when it runs, and return the messages until the end of its stream."""
    with session.stream("tools/call", call_params(name, {}, {"progressToken": "t"}), id=1) as stream:
        stream.next()
        assert session.notify("notifications/cancelled", {"requestId": 1, "reason": reason}).status_code == 202
        assert stream.read_to_end() == []


@pytest.mark.shows("cancellation.reason-logged")
@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("name", ["inline", "worker"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_reason_is_recorded_whichever_process_receives_it(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any], name: str, elsewhere: bool
) -> None:
    if elsewhere:
        monkeypatch.setattr(run, "stop_request", lambda *_: False)
    cancelled(client.handshake(), name, "the user \x00 left")
    call = eventually(Call.objects.first)
    assert (call.outcome, call.cause) == ("cancelled", "cancelled by its client: the user \ufffd left")
    eventually(lambda: not CallInput.objects.exists())


@pytest.mark.shows("cancellation.reason-logged")
@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("", "cancelled by its client"),
        (None, "cancelled by its client"),
        (5, "cancelled by its client"),
        (["a"], "cancelled by its client"),
        ("x" * 1000, "cancelled by its client: " + "x" * 500),
    ],
)
def test_a_reason_is_a_text_and_not_too_much_of_it_is_kept(
    client: RawClient, eventually: Callable[..., Any], reason: object, cause: str
) -> None:
    cancelled(client.handshake(), "inline", reason)
    assert eventually(Call.objects.first).cause == cause


@pytest.mark.shows("cancellation.races")
@pytest.mark.usefixtures("held")
def test_a_call_that_is_already_answered_is_not_cancelled_any_more(session: Peer) -> None:
    assert text_of(session.call("instant", id=1)) == "done"
    answered = session.notify("notifications/cancelled", {"requestId": 1, "reason": "too late"})
    assert (answered.status_code, answered.content) == (202, b"")
    call = Call.objects.get()
    assert (call.outcome, call.cause) == ("ok", "")
    assert not CallInput.objects.exists()


@pytest.mark.shows("cancellation.races")
@pytest.mark.usefixtures("held")
def test_a_cancellation_that_crosses_the_response_leaves_one_record_that_agrees_with_it(
    client: RawClient,
) -> None:
    session = client.handshake(HANDSHAKES[-1])
    with ThreadPoolExecutor(2) as threads:
        for id in range(20):
            calling = threads.submit(session.call, "instant", id=id)
            cancelling = threads.submit(session.notify, "notifications/cancelled", {"requestId": id})
            assert cancelling.result().status_code == 202
            call = calling.result()
            recorded = Call.objects.get(request_id=str(id))
            assert recorded.outcome == ("ok" if call.content and '"result"' in call.text else "cancelled")
    assert not RunningCall.objects.exists()
