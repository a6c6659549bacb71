"""A broker that hangs or refuses fails only what needs it, holds nobody up, and is used again when it is back."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from kombu import Connection
from kombu.exceptions import OperationalError

from tests.clock import Clock
from tests.wire.client import MODERN, RawClient, error_of, modern_request
from tools_app.calls.background import broker, queue
from tools_app.calls.background.broker import Broker, BrokerUnavailable
from tools_app.core import circuit_breaker
from tools_app.models import Call, RunningCall
from tools_app.server.embedded import EmbeddedHub

WAIT_SECONDS = 30.0
SHORT_SECONDS = 0.1


class Part:
    """A broker that can be made to hang or to refuse."""

    def __init__(self) -> None:
        self.hangs, self.refuses = False, False
        self.released = threading.Event()
        self.asked = 0

    def __call__(self, *_args: object) -> str:
        self.asked += 1
        if self.refuses:
            raise OperationalError("connection refused")
        if self.hangs:
            assert self.released.wait(WAIT_SECONDS)
        return "done"

    def comes_back(self) -> None:
        self.hangs = self.refuses = False
        self.released.set()


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Iterator[Part]:
    part = Part()
    monkeypatch.setattr(broker, "connect", part)
    monkeypatch.setattr(broker, "REQUEST_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(broker, "HANGING_SECONDS", SHORT_SECONDS / 2)
    monkeypatch.setattr(circuit_breaker, "PROBE_SECONDS", 0.02)
    yield part
    part.comes_back()


@pytest.fixture
def own(part: Part) -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


def test_one_that_hangs_is_not_waited_for_and_then_refuses_at_once(own: Broker, part: Part) -> None:
    part.hangs = True
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        own.call(part)
    asked = part.asked
    with pytest.raises(BrokerUnavailable, match="is away"):
        own.submit(part)
    assert part.asked - asked <= 1  # the probe's


def test_it_is_used_again_when_a_probe_gets_through(own: Broker, part: Part, eventually: Callable[..., Any]) -> None:
    part.refuses = True
    with pytest.raises(BrokerUnavailable, match="connection refused"):
        own.call(part)
    assert own.circuit.is_open
    part.comes_back()
    assert eventually(lambda: not own.circuit.is_open)
    assert own.call(part) == "done"


def test_no_more_wait_for_it_than_there_is_room_for(
    own: Broker, part: Part, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "MAX_WAITING", 6)
    # Those that are done take no room.
    for _ in range(12):
        assert own.call(part) == "done"
        assert eventually(lambda: own._waiting == 0)
    part.hangs = True
    waiting = [own.submit(part) for _ in range(6)]
    with pytest.raises(BrokerUnavailable, match="6 requests wait"):
        own.submit(part)
    part.comes_back()
    assert [done.result(WAIT_SECONDS) for done in waiting] == ["done"] * 6


def test_a_request_that_began_late_does_not_make_the_broker_unavailable(
    own: Broker, part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "HANGING_SECONDS", WAIT_SECONDS)
    part.hangs = True
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        own.call(part)
    assert not own.circuit.is_open
    part.comes_back()
    assert own.call(part) == "done"


def test_an_error_that_comes_after_the_timeout_is_not_logged_by_the_loop(
    own: Broker, part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "HANGING_SECONDS", WAIT_SECONDS)
    logged: list[dict[str, Any]] = []

    def fails_late(_connection: Connection) -> None:
        assert part.released.wait(WAIT_SECONDS)
        raise OperationalError("timed out")

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
        with pytest.raises(BrokerUnavailable, match="no answer within"):
            await own.acall(fails_late)
        part.comes_back()
        # The threads are done with it, and so is the loop.
        await asyncio.to_thread(own._threads.shutdown)
        await asyncio.sleep(0)

    asyncio.run(scenario())
    gc.collect()
    assert not logged


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Tells how long requests take; the waits for them stay real."""
    clock = Clock()
    monkeypatch.setattr(broker, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(broker, "HANGING_SECONDS", 50.0)
    return clock


def test_one_request_that_hangs_is_enough(
    own: Broker, part: Part, clock: Clock, eventually: Callable[..., Any]
) -> None:
    part.hangs = True
    own.submit(part)
    assert eventually(lambda: part.asked == 1)
    clock.now += 50
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        own.call(part)
    assert own.circuit.is_open


def test_a_request_that_is_done_does_not_hang(
    own: Broker, part: Part, clock: Clock, eventually: Callable[..., Any]
) -> None:
    part.hangs = True
    begun = [own.submit(part) for _ in range(2)]
    assert eventually(lambda: part.asked == 2)
    part.comes_back()
    assert [one.result(WAIT_SECONDS) for one in begun] == ["done"] * 2
    clock.now += 50
    part.released.clear()
    part.hangs = True
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        own.call(part)
    assert not own.circuit.is_open


def test_what_waits_for_a_thread_is_not_done_once_the_broker_is_away(
    own: Broker, part: Part, eventually: Callable[..., Any]
) -> None:
    own._threads._max_workers = 1
    part.hangs = True
    begun, done = own.submit(part), list[Connection]()
    assert eventually(lambda: part.asked == 1)
    queued = own.submit(done.append)
    part.refuses = True
    own.circuit.trip("gone")
    part.released.set()
    assert begun.result(WAIT_SECONDS) == "done"
    with pytest.raises(BrokerUnavailable, match="is away"):
        queued.result(WAIT_SECONDS)
    assert done == []


def test_who_stops_it_waits_for_nothing_and_drops_what_is_queued(
    own: Broker, part: Part, eventually: Callable[..., Any]
) -> None:
    own._threads._max_workers = 1
    part.hangs = True
    begun, queued = own.submit(part), own.submit(part)
    assert eventually(lambda: part.asked == 1)
    own.circuit.trip("gone")
    own.close()
    assert not begun.done()
    assert queued.cancelled()
    part.refuses = True
    part.released.set()
    assert eventually(lambda: not own.circuit.is_open)
    with pytest.raises(RuntimeError):
        own.submit(part)


def test_a_request_that_no_thread_has_begun_is_not_done_after_its_deadline(
    own: Broker, part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "HANGING_SECONDS", WAIT_SECONDS)
    part.hangs = True
    begun = [own.submit(part) for _ in range(broker.THREADS)]
    done: list[Connection] = []
    with pytest.raises(BrokerUnavailable):
        asyncio.run(own.acall(done.append))
    assert not own.circuit.is_open
    part.comes_back()
    assert [one.result(WAIT_SECONDS) for one in begun] == ["done"] * broker.THREADS
    assert done == []


def test_a_connection_that_was_closed_while_it_was_idle_is_made_anew(own: Broker) -> None:
    links: list[Connection] = []

    def closed_once(link: Connection) -> str:
        links.append(link)
        if len(links) == 1:
            link.ensure_connection()
            return "connected"
        if link is links[0]:
            raise ConnectionResetError("closed by the other side")
        return "done"

    own._threads._max_workers = 1  # each thread has a connection of its own
    assert [own.call(closed_once) for _ in range(2)] == ["connected", "done"]
    assert not own.circuit.is_open


def test_what_fails_in_our_own_code_is_not_taken_for_the_broker(own: Broker) -> None:
    with pytest.raises(ZeroDivisionError):
        own.call(lambda _link: 1 // 0)
    assert not own.circuit.is_open


class Link:
    """A connection to a RabbitMQ whose alarm is on: it connects, and confirms nothing."""

    class transport:  # noqa: N801 - as kombu calls it
        driver_type = "amqp"

    def __init__(self) -> None:
        self.connected = True
        self.connection = self.default_channel = self
        self.asked = self.collected = self.released = False
        self.blocks = True

    def ensure_connection(self, *, timeout: float, **_options: Any) -> None:
        """It is there."""
        assert timeout <= broker.REQUEST_SECONDS
        self.asked = True

    def prepare_message(self, body: bytes) -> bytes:
        assert isinstance(body, bytes), "kombu encodes no text of a message without an encoding"
        return body

    def basic_publish(self, _message: bytes, *, confirm_timeout: float, **_to: str) -> None:
        assert confirm_timeout <= broker.REQUEST_SECONDS
        if self.blocks:
            raise TimeoutError("connection.blocked")

    def collect(self) -> None:
        self.collected = True

    def release(self) -> None:
        self.released = True


def test_a_rabbitmq_that_takes_no_messages_is_not_taken_for_one_that_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link()
    monkeypatch.setattr(broker.current_app, "connection_for_write", lambda: link)
    with pytest.raises(TimeoutError):
        broker.connect()
    assert link.asked
    assert link.collected, "it is left without a farewell, which would not be read"
    link.blocks = False
    broker.connect()
    assert link.released


# --- The hub --------------------------------------------------------------------------------------------------


@pytest.fixture
def away(hub: EmbeddedHub, part: Part, monkeypatch: pytest.MonkeyPatch) -> Iterator[Part]:
    """The running hub's queue hangs or refuses when the test says so."""
    enqueue = queue._enqueue

    def sometimes(call_id: object, tenant_id: object, link: Any) -> None:
        part()
        enqueue(call_id, tenant_id, link)  # type: ignore[arg-type]

    monkeypatch.setattr(queue, "_enqueue", sometimes)
    broker.current.stop()
    yield part
    part.comes_back()
    broker.current.stop()


def posted(hub: EmbeddedHub, key: str, tool: str, **arguments: object) -> httpx.Response:
    client = RawClient(hub.url, key)
    with client.http:
        return client.peer(MODERN).call(tool, arguments)


def assert_refused(response: httpx.Response) -> None:
    assert (response.status_code, error_of(response)["code"]) == (503, -32603)
    assert error_of(response)["message"].startswith("The broker is unavailable")
    assert "Nothing ran." in error_of(response)["message"]
    assert response.headers["Retry-After"] == "1"


def test_a_broker_that_hangs_fails_background_calls_only_and_nobody_else_waits(
    hub: EmbeddedHub, key: str, offer: Callable[..., object], away: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "REQUEST_SECONDS", 2.0)
    offer("echo", "count")
    away.hangs = True
    client = RawClient(hub.url, key)
    with ThreadPoolExecutor(12) as threads, client.http:
        hung: list[Future[httpx.Response]] = [threads.submit(posted, hub, key, "count", n=1) for _ in range(12)]
        deadline = time.monotonic() + WAIT_SECONDS
        while away.asked < broker.THREADS:
            assert time.monotonic() < deadline
        others = [
            client.peer(MODERN).call("echo", {"message": "x"}),
            client.post(*modern_request("tools/list")),
            # A key that is in no memory yet and a new session are read from the database and written to it.
            client.initialize(),
        ]
        assert not any(one.done() for one in hung), "nobody was held up: it was over"
        assert [answer.status_code for answer in others] == [200, 200, 200]
        for one in hung:
            assert_refused(one.result(WAIT_SECONDS))


def test_background_calls_are_refused_at_once_while_it_is_away_and_run_when_it_is_back(
    hub: EmbeddedHub, key: str, offer: Callable[..., object], away: Part, eventually: Callable[..., Any]
) -> None:
    offer("count")
    away.refuses = True
    assert_refused(posted(hub, key, "count", n=1))
    asked = away.asked
    assert_refused(posted(hub, key, "count", n=1))
    assert away.asked - asked < 50  # probes, and no more than that
    away.comes_back()
    assert eventually(lambda: posted(hub, key, "count", n=1).status_code == 200)
    assert not RunningCall.objects.exists()
    cause = Call.objects.order_by("started_at").values_list("cause", flat=True)[0]
    assert cause == "The broker is unavailable: connection refused"
