"""Progress of a running call (progress, §Progress Flow)."""

from collections.abc import Callable
from itertools import pairwise

import orjson
import pytest

from tests.wire.client import Heard, Peer, RawClient, call_params, message_of
from tools_app.models import Call, CallEvent

STEPS = 5


@pytest.fixture(autouse=True)
def demo(offer: Callable[..., object]) -> None:
    offer("count")


def counted(peer: Peer, token: object) -> list[Heard]:
    params = call_params("count", {"n": STEPS}, {"progressToken": token})
    with peer.stream("tools/call", params, id=7) as stream:
        assert stream.response.headers["content-type"] == "text/event-stream"
        return list(stream)


@pytest.mark.shows(
    "progress.known-token",
    "progress.message",
    "progress.stops",
    "streamable-http.answer-on-stream",
    "streamable-http.closes-stream",
    "streamable-http.no-early-close",
    "streamable-http.only-related-messages",
    "streamable-http.related-messages",
)
def test_each_step_is_told_under_the_clients_token_before_the_result(peer: Peer) -> None:
    token = 0
    *steps, last = [heard.message for heard in counted(peer, token)]
    assert last["id"] == 7
    assert last["result"]["content"] == [{"type": "text", "text": str(STEPS)}]
    assert [step["method"] for step in steps] == ["notifications/progress"] * STEPS
    for number, step in enumerate(steps):
        said = {"progressToken": token, "progress": number, "total": STEPS}
        if peer.version >= "2025-03-26":
            said["message"] = f"Step {number} of {STEPS}"
        assert step["params"] == said


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_steps_arrive_while_the_tool_runs_and_not_at_its_end(client: RawClient, version: str) -> None:
    peer = client.peer(version)
    times = [heard.at for heard in counted(peer, "t")]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert times[-1] - times[0] >= 0.09 * STEPS
    assert sum(gap > 0.05 for gap in gaps) >= STEPS - 1


@pytest.mark.shows("progress.known-token", "progress.token")
@pytest.mark.parametrize("token", [None, True, 1.5, {"a": 1}])
def test_without_a_good_token_nothing_is_told_but_all_is_recorded(client: RawClient, token: object) -> None:
    peer = client.handshake()
    response = peer.call("count", {"n": 2}, meta={"progressToken": token} if token else None)
    assert "notifications/progress" not in response.text
    assert message_of(response)["result"]["content"][0]["text"] == "2"
    call = Call.objects.get()
    assert (call.outcome, call.background, call.event_count) == ("ok", True, 2)
    events = [(event.sequence, event.kind, orjson.loads(event.data)) for event in CallEvent.objects.filter(call=call)]
    assert events == [
        (1, "progress", {"progress": 0, "total": 2, "message": "Step 0 of 2"}),
        (2, "progress", {"progress": 1, "total": 2, "message": "Step 1 of 2"}),
    ]
