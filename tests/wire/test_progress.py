"""Progress of a running call (progress, §Progress Flow)."""

import threading
from collections.abc import Callable, Sequence

import orjson
import pytest

from tests.wire.client import Peer, RawClient, ReceivedMessage, call_params, message_of
from tools_app.models import Call, CallEvent
from tools_app.tool_api import context as tool_context
from tools_app.tool_api.context import ProgressThrottle
from tools_app.toolkit import ToolContext, ToolError, tool

STEPS = 5
WAIT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def demo(offer: Callable[..., object]) -> None:
    offer("count")


def counted(peer: Peer, token: object) -> list[ReceivedMessage]:
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
def test_steps_arrive_while_the_tool_runs_and_not_at_its_end(
    registries: None, offer: Callable[..., object], client: RawClient, version: str
) -> None:
    heard = [threading.Event() for _ in range(STEPS)]

    @tool(background=True)
    def waits(context: ToolContext) -> str:
        for number, event in enumerate(heard):
            context.progress(number)
            assert event.wait(WAIT_SECONDS)
        return "done"

    offer("waits")
    with client.peer(version).stream("tools/call", call_params("waits", meta={"progressToken": "t"})) as stream:
        for number, event in enumerate(heard):
            assert stream.next()["params"]["progress"] == number
            event.set()
        assert stream.read_to_end()[-1]["result"]["content"][0]["text"] == "done"


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


@pytest.fixture
def reporting(registries: None, offer: Callable[..., object]) -> Callable[..., None]:
    """Offer a tool "report" that reports these values, in the web process or in a worker."""

    def add(values: Sequence[float], *, background: bool) -> None:
        @tool(background=background)
        def report(context: ToolContext) -> str:
            for value in values:
                context.progress(value)
            return "done"

        offer("report")

    return add


def reported(peer: Peer) -> list[float]:
    with peer.stream("tools/call", call_params("report", meta={"progressToken": "t"})) as stream:
        *steps, last = stream.read_to_end()
    assert last["result"]["content"][0]["text"] == "done"
    return [step["params"]["progress"] for step in steps]


@pytest.mark.shows("progress.increases")
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(
    ("values", "heard"),
    [([5, 3, 5], [5]), ([1, 1.0, 1.5, 1.25, 2], [1, 1.5, 2]), ([-3, -4, 0, -1], [-3, 0]), ([0, 0], [0])],
)
def test_what_is_not_higher_than_what_was_said_before_is_not_said(
    reporting: Callable[..., None], peer: Peer, background: bool, values: list[float], heard: list[float]
) -> None:
    reporting(values, background=background)
    assert reported(peer) == heard
    assert Call.objects.get().event_count == len(heard)


@pytest.mark.shows("progress.rate-limit", "progress.increases")
@pytest.mark.parametrize("background", [False, True])
def test_a_tool_that_reports_without_pause_is_heard_now_and_then_and_at_last(
    reporting: Callable[..., None], client: RawClient, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    monkeypatch.setattr(tool_context, "MAX_PROGRESS_PER_SECOND", 10)
    reporting(range(10_000), background=background)
    heard = reported(client.handshake())
    assert heard[:10] == list(range(10))
    assert heard[-1] == 9_999
    assert len(heard) < 200
    assert heard == sorted(set(heard))


class Clockwork:
    """A clock that stands still until it is moved, and what is to be done later by it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(tool_context, "monotonic", lambda: self.now)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, work))

    def move(self, seconds: float) -> None:
        self.now += seconds
        ripe = [work for at, work in self.due if at <= self.now]
        self.due = [(at, work) for at, work in self.due if at > self.now]
        for work in ripe:
            work()


@pytest.fixture
def clockwork(monkeypatch: pytest.MonkeyPatch) -> Clockwork:
    monkeypatch.setattr(tool_context, "MAX_PROGRESS_PER_SECOND", 3)
    return Clockwork(monkeypatch)


@pytest.mark.shows("progress.rate-limit")
def test_the_pace_is_so_much_a_second_and_keeps_the_last_of_what_was_too_much(clockwork: Clockwork) -> None:
    said: list[int] = []
    reports = ProgressThrottle(lambda data: said.append(data["progress"]), clockwork.later)
    for value in range(6):
        reports.send(value, {"progress": value})
    assert said == [0, 1, 2]
    clockwork.move(0.5)
    assert said == [0, 1, 2]
    # The second is over: the last of what was too much is said, though nothing came after it.
    clockwork.move(0.5)
    assert said == [0, 1, 2, 5]
    for value in range(6, 12):
        reports.send(value, {"progress": value})
    assert said == [0, 1, 2, 5, 6, 7]
    reports.close()
    assert said == [0, 1, 2, 5, 6, 7, 11]
    # The function is over: nothing more is said.
    reports.send(12, {"progress": 12})
    clockwork.move(5)
    reports.close()
    assert said == [0, 1, 2, 5, 6, 7, 11]


def test_a_value_is_not_said_before_a_smaller_one_that_is_on_its_way(clockwork: Clockwork) -> None:
    said: list[int] = []
    on_its_way, arrived = threading.Event(), threading.Event()

    def emit(data: dict[str, int]) -> None:
        if data["progress"] == 1:
            on_its_way.set()
            assert arrived.wait(WAIT_SECONDS)
        said.append(data["progress"])

    reports = ProgressThrottle(emit, clockwork.later)
    slow = threading.Thread(target=reports.send, args=[1, {"progress": 1}])
    slow.start()
    assert on_its_way.wait(WAIT_SECONDS)
    reports.send(2, {"progress": 2})
    assert said == []
    arrived.set()
    slow.join(WAIT_SECONDS)
    clockwork.move(1)
    assert said == [1, 2]


@pytest.mark.parametrize("background", [False, True])
def test_the_last_of_what_was_too_much_is_heard_while_the_tool_goes_on(
    registries: None, offer: Callable[..., object], client: RawClient, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    monkeypatch.setattr(tool_context, "MAX_PROGRESS_PER_SECOND", 5)
    go_on = threading.Event()

    @tool(background=background)
    def bursts(context: ToolContext) -> str:
        for value in range(50):
            context.progress(value)
        assert go_on.wait(WAIT_SECONDS)
        return "done"

    offer("bursts")
    peer = client.handshake()
    with peer.stream("tools/call", call_params("bursts", meta={"progressToken": "t"})) as stream:
        heard = [stream.next()["params"]["progress"] for _ in range(6)]
        go_on.set()
        stream.read_to_end()
    assert heard == [0, 1, 2, 3, 4, 49]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("raises", [ToolError("no"), RuntimeError("broken")], ids=["tool-error", "bug"])
def test_a_tool_that_fails_is_heard_to_its_last_value(
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
