"""How a running call is cancelled, and how it is not (cancellation)."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.client import Peer, RawClient, call_params, text_of
from tools_app.models import Call, RunningCall

LONG = call_params("count", {"n": 600}, {"progressToken": "t"})


@pytest.fixture(autouse=True)
def demo(offer: Callable[..., object]) -> None:
    offer("count")


@pytest.mark.shows("cancellation.stops")
def test_the_notification_stops_the_call_and_its_record_says_so(session: Peer, eventually: Callable[..., Any]) -> None:
    with session.stream("tools/call", LONG, id="long") as stream:
        assert stream.next()["method"] == "notifications/progress"
        assert session.notify("notifications/cancelled", {"requestId": "long", "reason": "enough"}).status_code == 202
        assert all("result" not in message for message in stream.ends())
    call = eventually(Call.objects.first)
    assert call.outcome == "cancelled"
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
        assert stream.ends()[-1]["result"]["isError"] is False


def test_another_session_cannot_cancel_the_call(client: RawClient) -> None:
    own, other = client.handshake(), client.handshake()
    with own.stream("tools/call", call_params("count", {"n": 3}, {"progressToken": "t"}), id=1) as stream:
        stream.next()
        assert other.notify("notifications/cancelled", {"requestId": 1}).status_code == 202
        assert stream.ends()[-1]["result"]["isError"] is False


def test_a_call_can_follow_one_that_was_cancelled_under_the_same_id(client: RawClient) -> None:
    session = client.handshake()
    with session.stream("tools/call", LONG, id=1) as stream:
        stream.next()
        began = time.monotonic()
        session.notify("notifications/cancelled", {"requestId": 1})
        stream.ends()
    assert time.monotonic() - began < 2.0
    assert text_of(session.call("count", {"n": 1}, id=1)) == "1"
