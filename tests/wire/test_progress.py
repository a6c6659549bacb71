"""Progress of a running call (progress, §Progress Flow)."""

import threading
from collections.abc import Callable, Sequence

import orjson
import pytest

from tests.wire.client import Peer, RawClient, ReceivedMessage, call_params, message_of
from tools_app.catalog.tool_api import context as tool_context
from tools_app.catalog.tool_api.context import ProgressThrottle
from tools_app.models import Call, CallEvent
from tools_app.toolkit import ToolContext, ToolError, tool

STEPS = 5
WAIT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def demo(offer: Callable[..., object]) -> None:
    offer("count")


def call_count_tool(peer: Peer, token: object) -> list[ReceivedMessage]:
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
def test_each_step_is_sent_with_the_clients_token_before_the_result(peer: Peer) -> None:
    token = 0
    *notifications, response = [item.message for item in call_count_tool(peer, token)]
    assert response["id"] == 7
    assert response["result"]["content"] == [{"type": "text", "text": str(STEPS)}]
    assert [notification["method"] for notification in notifications] == ["notifications/progress"] * STEPS
    for number, notification in enumerate(notifications):
        expected = {"progressToken": token, "progress": number, "total": STEPS}
        if peer.version >= "2025-03-26":
            expected["message"] = f"Step {number} of {STEPS}"
        assert notification["params"] == expected


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_steps_arrive_while_the_tool_runs_and_not_at_its_end(
    registries: None, offer: Callable[..., object], client: RawClient, version: str
) -> None:
    arrivals = [threading.Event() for _ in range(STEPS)]

    @tool(background=True)
    def waits(context: ToolContext) -> str:
        for number, event in enumerate(arrivals):
            context.progress(number)
            assert event.wait(WAIT_SECONDS)
        return "done"

    offer("waits")
    with client.peer(version).stream("tools/call", call_params("waits", meta={"progressToken": "t"})) as stream:
        for number, event in enumerate(arrivals):
            assert stream.next()["params"]["progress"] == number
            event.set()
        assert stream.read_to_end()[-1]["result"]["content"][0]["text"] == "done"


@pytest.mark.shows("progress.known-token", "progress.token")
@pytest.mark.parametrize("token", [None, True, 1.5, {"a": 1}])
def test_without_a_valid_token_progress_is_recorded_and_not_sent(client: RawClient, token: object) -> None:
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


@pytest.fixture
def offer_report(registries: None, offer: Callable[..., object]) -> Callable[..., None]:
    """Offer a tool "report" that reports these values, in the web process or in a worker."""

    def add(values: Sequence[float], *, background: bool) -> None:
        @tool(background=background)
        def report(context: ToolContext) -> str:
            for value in values:
                context.progress(value)
            return "done"

        offer("report")

    return add


def reported_progress(peer: Peer) -> list[float]:
    with peer.stream("tools/call", call_params("report", meta={"progressToken": "t"})) as stream:
        *steps, last = stream.read_to_end()
    assert last["result"]["content"][0]["text"] == "done"
    return [step["params"]["progress"] for step in steps]


@pytest.mark.shows("progress.increases")
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(
    ("values", "expected"),
    [([5, 3, 5], [5]), ([1, 1.0, 1.5, 1.25, 2], [1, 1.5, 2]), ([-3, -4, 0, -1], [-3, 0]), ([0, 0], [0])],
)
def test_progress_that_does_not_increase_is_not_sent(
    offer_report: Callable[..., None], peer: Peer, background: bool, values: list[float], expected: list[float]
) -> None:
    offer_report(values, background=background)
    assert reported_progress(peer) == expected
    assert Call.objects.get().event_count == len(expected)


@pytest.mark.shows("progress.rate-limit", "progress.increases")
@pytest.mark.parametrize("background", [False, True])
def test_frequent_progress_is_throttled_and_the_last_value_is_sent(
    offer_report: Callable[..., None], client: RawClient, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    monkeypatch.setattr(tool_context, "MAX_PROGRESS_PER_SECOND", 10)
    offer_report(range(10_000), background=background)
    received = reported_progress(client.handshake())
    assert received[:10] == list(range(10))
    assert received[-1] == 9_999
    assert len(received) < 200
    assert received == sorted(set(received))


class FakeClock:
    """A clock that moves only when a test moves it, with a timer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(tool_context, "monotonic", lambda: self.now)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, work))

    def move(self, seconds: float) -> None:
        self.now += seconds
        due_now = [work for at, work in self.due if at <= self.now]
        self.due = [(at, work) for at, work in self.due if at > self.now]
        for work in due_now:
            work()


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    monkeypatch.setattr(tool_context, "MAX_PROGRESS_PER_SECOND", 3)
    return FakeClock(monkeypatch)


@pytest.mark.shows("progress.rate-limit")
def test_the_throttle_sends_so_many_a_second_and_then_the_last_of_the_others(fake_clock: FakeClock) -> None:
    sent: list[int] = []
    throttle = ProgressThrottle(lambda data: sent.append(data["progress"]), fake_clock.later)
    for value in range(6):
        throttle.send(value, {"progress": value})
    assert sent == [0, 1, 2]
    fake_clock.move(0.5)
    assert sent == [0, 1, 2]
    # The second is over: the last throttled value is sent, although no other followed.
    fake_clock.move(0.5)
    assert sent == [0, 1, 2, 5]
    for value in range(6, 12):
        throttle.send(value, {"progress": value})
    assert sent == [0, 1, 2, 5, 6, 7]
    throttle.close()
    assert sent == [0, 1, 2, 5, 6, 7, 11]
    # The function has returned: nothing more is sent.
    throttle.send(12, {"progress": 12})
    fake_clock.move(5)
    throttle.close()
    assert sent == [0, 1, 2, 5, 6, 7, 11]


def test_a_value_is_not_sent_before_a_smaller_one_that_is_being_sent(fake_clock: FakeClock) -> None:
    sent: list[int] = []
    sending, may_send = threading.Event(), threading.Event()

    def emit(data: dict[str, int]) -> None:
        if data["progress"] == 1:
            sending.set()
            assert may_send.wait(WAIT_SECONDS)
        sent.append(data["progress"])

    throttle = ProgressThrottle(emit, fake_clock.later)
    sender = threading.Thread(target=throttle.send, args=[1, {"progress": 1}])
    sender.start()
    assert sending.wait(WAIT_SECONDS)
    throttle.send(2, {"progress": 2})
    assert sent == []
    may_send.set()
    sender.join(WAIT_SECONDS)
    fake_clock.move(1)
    assert sent == [1, 2]


@pytest.mark.parametrize("background", [False, True])
def test_the_last_throttled_value_is_sent_while_the_tool_still_runs(
    registries: None, offer: Callable[..., object], client: RawClient, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    monkeypatch.setattr(tool_context, "MAX_PROGRESS_PER_SECOND", 5)
    may_return = threading.Event()

    @tool(background=background)
    def bursts(context: ToolContext) -> str:
        for value in range(50):
            context.progress(value)
        assert may_return.wait(WAIT_SECONDS)
        return "done"

    offer("bursts")
    peer = client.handshake()
    with peer.stream("tools/call", call_params("bursts", meta={"progressToken": "t"})) as stream:
        received = [stream.next()["params"]["progress"] for _ in range(6)]
        may_return.set()
        stream.read_to_end()
    assert received == [0, 1, 2, 3, 4, 49]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("raises", [ToolError("no"), RuntimeError("broken")], ids=["tool-error", "bug"])
def test_the_last_value_of_a_tool_that_fails_is_sent(
    registries: None,
    offer: Callable[..., object],
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    background: bool,
    raises: Exception,
) -> None:
    monkeypatch.setattr(tool_context, "MAX_PROGRESS_PER_SECOND", 5)

    @tool(background=background)
    async def fails(context: ToolContext) -> str:
        for value in range(50):
            context.progress(value)
        raise raises

    offer("fails")
    with client.handshake().stream("tools/call", call_params("fails", meta={"progressToken": "t"})) as stream:
        *steps, last = stream.read_to_end()
    assert [step["params"]["progress"] for step in steps] == [0, 1, 2, 3, 4, 49]
    assert last["result"]["isError"] is True
    assert Call.objects.get().event_count == 6
