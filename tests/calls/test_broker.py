"""A broker that hangs or refuses fails only calls that need it, delays nobody, and is used again when it is back."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Self

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
from tools_app.transport import delivery

WAIT_SECONDS = 30.0
SHORT_SECONDS = 0.1


class FakeRequest:
    """A request to a broker that tests make hang or refuse."""

    def __init__(self) -> None:
        self.hangs, self.refuses = False, False
        self.released = threading.Event()
        self.count = 0

    def __call__(self, *_args: object) -> str:
        self.count += 1
        if self.refuses:
            raise OperationalError("connection refused")
        if self.hangs:
            assert self.released.wait(WAIT_SECONDS)
        return "done"

    def comes_back(self) -> None:
        self.hangs = self.refuses = False
        self.released.set()


@pytest.fixture
def fake_request(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRequest]:
    fake_request = FakeRequest()
    monkeypatch.setattr(broker, "connect", fake_request)
    monkeypatch.setattr(broker, "REQUEST_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(circuit_breaker, "PROBE_SECONDS", 0.02)
    yield fake_request
    fake_request.comes_back()


@pytest.fixture
def short_requests(fake_request: FakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a moment only, for tests of requests that get no answer."""
    monkeypatch.setattr(broker, "REQUEST_SECONDS", SHORT_SECONDS)


@pytest.fixture
def broker_client(fake_request: FakeRequest) -> Iterator[Broker]:
    client = Broker()
    yield client
    client.close()


@pytest.mark.usefixtures("short_requests")
def test_one_that_hangs_is_not_waited_for_and_then_refuses_at_once(
    broker_client: Broker, fake_request: FakeRequest, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "HANGING_SECONDS", 0.0)
    fake_request.hangs = True
    # The thread of the call itself may begin after its timeout.
    broker_client.submit(fake_request)
    assert eventually(lambda: fake_request.count == 1)
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        broker_client.call(fake_request)
    count_before = fake_request.count
    with pytest.raises(BrokerUnavailable, match="is away"):
        broker_client.submit(fake_request)
    assert fake_request.count - count_before <= 1  # the probe's


def test_it_is_used_again_when_a_probe_gets_through(
    broker_client: Broker, fake_request: FakeRequest, eventually: Callable[..., Any]
) -> None:
    fake_request.refuses = True
    with pytest.raises(BrokerUnavailable, match="connection refused"):
        broker_client.call(fake_request)
    assert broker_client.circuit.is_open
    fake_request.comes_back()
    assert eventually(lambda: not broker_client.circuit.is_open)
    assert broker_client.call(fake_request) == "done"


def test_no_more_wait_for_it_than_there_is_room_for(
    broker_client: Broker, fake_request: FakeRequest, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "MAX_WAITING", 6)
    # Those that are done take no room.
    for _ in range(12):
        assert broker_client.call(fake_request) == "done"
        assert eventually(lambda: broker_client._waiting == 0)
    fake_request.hangs = True
    waiting = [broker_client.submit(fake_request) for _ in range(6)]
    with pytest.raises(BrokerUnavailable, match="6 requests wait"):
        broker_client.submit(fake_request)
    fake_request.comes_back()
    assert [done.result(WAIT_SECONDS) for done in waiting] == ["done"] * 6


def test_a_request_that_began_late_does_not_make_the_broker_unavailable(
    broker_client: Broker, fake_request: FakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "HANGING_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(broker, "REQUEST_SECONDS", SHORT_SECONDS)
    fake_request.hangs = True
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        broker_client.call(fake_request)
    assert not broker_client.circuit.is_open
    monkeypatch.setattr(broker, "REQUEST_SECONDS", WAIT_SECONDS)
    fake_request.comes_back()
    assert broker_client.call(fake_request) == "done"


@pytest.mark.usefixtures("short_requests")
def test_an_error_that_comes_after_the_timeout_is_not_logged_by_the_loop(
    broker_client: Broker, fake_request: FakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "HANGING_SECONDS", WAIT_SECONDS)
    logged: list[dict[str, Any]] = []

    def fails_late(_connection: Connection) -> None:
        assert fake_request.released.wait(WAIT_SECONDS)
        raise OperationalError("timed out")

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
        with pytest.raises(BrokerUnavailable, match="no answer within"):
            await broker_client.acall(fails_late)
        fake_request.comes_back()
        # Wait for the threads and for the loop.
        await asyncio.to_thread(broker_client._threads.shutdown)
        await asyncio.sleep(0)

    asyncio.run(scenario())
    gc.collect()
    assert not logged


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that measures requests. The waits for them use the real one."""
    clock = Clock()
    monkeypatch.setattr(broker, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(broker, "HANGING_SECONDS", 50.0)
    return clock


@pytest.mark.usefixtures("short_requests")
def test_one_request_that_hangs_is_enough(
    broker_client: Broker, fake_request: FakeRequest, clock: Clock, eventually: Callable[..., Any]
) -> None:
    fake_request.hangs = True
    broker_client.submit(fake_request)
    assert eventually(lambda: fake_request.count == 1)
    clock.now += 50
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        broker_client.call(fake_request)
    assert broker_client.circuit.is_open


@pytest.mark.usefixtures("short_requests")
def test_a_request_that_is_done_does_not_hang(
    broker_client: Broker, fake_request: FakeRequest, clock: Clock, eventually: Callable[..., Any]
) -> None:
    fake_request.hangs = True
    running = [broker_client.submit(fake_request) for _ in range(2)]
    assert eventually(lambda: fake_request.count == 2)
    fake_request.comes_back()
    assert [future.result(WAIT_SECONDS) for future in running] == ["done"] * 2
    clock.now += 50
    fake_request.released.clear()
    fake_request.hangs = True
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        broker_client.call(fake_request)
    assert not broker_client.circuit.is_open


def test_what_waits_for_a_thread_is_not_done_once_the_broker_is_away(
    broker_client: Broker, fake_request: FakeRequest, eventually: Callable[..., Any]
) -> None:
    broker_client._threads._max_workers = 1
    fake_request.hangs = True
    running, done = broker_client.submit(fake_request), list[Connection]()
    assert eventually(lambda: fake_request.count == 1)
    queued = broker_client.submit(done.append)
    fake_request.refuses = True
    broker_client.circuit.trip("gone")
    fake_request.released.set()
    assert running.result(WAIT_SECONDS) == "done"
    with pytest.raises(BrokerUnavailable, match="is away"):
        queued.result(WAIT_SECONDS)
    assert done == []


def test_who_stops_it_waits_for_nothing_and_drops_what_is_queued(
    broker_client: Broker, fake_request: FakeRequest, eventually: Callable[..., Any]
) -> None:
    broker_client._threads._max_workers = 1
    fake_request.hangs = True
    running, queued = broker_client.submit(fake_request), broker_client.submit(fake_request)
    assert eventually(lambda: fake_request.count == 1)
    broker_client.circuit.trip("gone")
    broker_client.close()
    assert not running.done()
    assert queued.cancelled()
    fake_request.refuses = True
    fake_request.released.set()
    assert eventually(lambda: not broker_client.circuit.is_open)
    with pytest.raises(RuntimeError):
        broker_client.submit(fake_request)


@pytest.mark.usefixtures("short_requests")
def test_a_request_that_no_thread_has_begun_is_not_done_after_its_deadline(
    broker_client: Broker, fake_request: FakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "HANGING_SECONDS", WAIT_SECONDS)
    fake_request.hangs = True
    running = [broker_client.submit(fake_request) for _ in range(broker.THREADS)]
    done: list[Connection] = []
    with pytest.raises(BrokerUnavailable):
        asyncio.run(broker_client.acall(done.append))
    assert not broker_client.circuit.is_open
    fake_request.comes_back()
    assert [future.result(WAIT_SECONDS) for future in running] == ["done"] * broker.THREADS
    assert done == []


def test_a_connection_that_was_closed_while_it_was_idle_is_made_anew(broker_client: Broker) -> None:
    connections: list[Connection] = []

    def closed_once(connection: Connection) -> str:
        connections.append(connection)
        if len(connections) == 1:
            connection.ensure_connection()
            return "connected"
        if connection is connections[0]:
            raise ConnectionResetError("closed by the other side")
        return "done"

    broker_client._threads._max_workers = 1  # each thread has a connection of its own
    assert [broker_client.call(closed_once) for _ in range(2)] == ["connected", "done"]
    assert not broker_client.circuit.is_open


def test_what_fails_in_our_own_code_is_not_taken_for_the_broker(broker_client: Broker) -> None:
    with pytest.raises(ZeroDivisionError):
        broker_client.call(lambda _link: 1 // 0)
    assert not broker_client.circuit.is_open


class BlockedConnection:
    """A connection to a RabbitMQ with an alarm: it connects, and confirms no message."""

    class transport:  # noqa: N801 - as kombu calls it
        driver_type = "amqp"

    def __init__(self) -> None:
        self.is_connected = self.collected = self.released = False
        self.blocks = True

    def ensure_connection(self, *, timeout: float, **_options: Any) -> None:
        """It connects."""
        assert timeout <= broker.REQUEST_SECONDS
        self.is_connected = True

    def Producer(self, **_options: Any) -> Self:  # noqa: N802 - as kombu calls it
        return self

    def publish(self, _body: bytes, *, confirm_timeout: float, **_to: str) -> None:
        assert confirm_timeout <= broker.REQUEST_SECONDS
        if self.blocks:
            raise TimeoutError("connection.blocked")

    def collect(self) -> None:
        self.collected = True

    def release(self) -> None:
        self.released = True


def test_a_rabbitmq_that_takes_no_messages_is_not_taken_for_one_that_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = BlockedConnection()
    monkeypatch.setattr(broker.current_app, "connection_for_write", lambda: connection)
    with pytest.raises(TimeoutError):
        broker.connect()
    assert connection.is_connected
    assert connection.collected, "it is dropped without a close, which would not be read"
    connection.blocks = False
    broker.connect()
    assert connection.released


# --- The hub --------------------------------------------------------------------------------------------------


@pytest.fixture
def queue_of_hub(hub: EmbeddedHub, fake_request: FakeRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRequest]:
    """Make the queue of the running hub hang or refuse."""
    enqueue = queue._enqueue

    def request_and_enqueue(call_id: object, tenant_id: object, connection: Any) -> None:
        fake_request()
        enqueue(call_id, tenant_id, connection)  # type: ignore[arg-type]

    monkeypatch.setattr(queue, "_enqueue", request_and_enqueue)
    broker.current.stop()
    yield fake_request
    fake_request.comes_back()
    broker.current.stop()


def post_call(hub: EmbeddedHub, key: str, tool: str, **arguments: object) -> httpx.Response:
    client = RawClient(hub.url, key)
    with client.http:
        return client.peer(MODERN).call(tool, arguments)


def assert_refused(response: httpx.Response) -> None:
    assert (response.status_code, error_of(response)["code"]) == (503, -32603)
    assert error_of(response)["message"].startswith("The broker is unavailable")
    assert "Nothing ran." in error_of(response)["message"]
    assert response.headers["Retry-After"] == "1"


def test_a_broker_that_hangs_fails_background_calls_only_and_nobody_else_waits(
    hub: EmbeddedHub,
    key: str,
    offer: Callable[..., object],
    queue_of_hub: FakeRequest,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Others are answered before the hung calls are, also on a busy machine.
    monkeypatch.setattr(broker, "REQUEST_SECONDS", 5.0)
    monkeypatch.setattr(delivery, "STREAM_AFTER_SECONDS", 2 * WAIT_SECONDS)
    offer("echo", "count")
    queue_of_hub.hangs = True
    client = RawClient(hub.url, key)
    with ThreadPoolExecutor(12) as threads, client.http:
        hung: list[Future[httpx.Response]] = [threads.submit(post_call, hub, key, "count", n=1) for _ in range(12)]
        eventually(lambda: queue_of_hub.count >= broker.THREADS)
        responses = [
            client.peer(MODERN).call("echo", {"message": "x"}),
            client.post(*modern_request("tools/list")),
            # A key that is in no memory yet and a new session are read from the database and written to it.
            client.initialize(),
        ]
        assert not any(future.done() for future in hung), "nobody was held up: it was over"
        assert [response.status_code for response in responses] == [200, 200, 200]
        for future in hung:
            assert_refused(future.result(WAIT_SECONDS))


def test_background_calls_are_refused_at_once_while_it_is_away_and_run_when_it_is_back(
    hub: EmbeddedHub,
    key: str,
    offer: Callable[..., object],
    queue_of_hub: FakeRequest,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer("count")
    probe = FakeRequest()
    monkeypatch.setattr(broker, "connect", probe)
    probe.refuses = queue_of_hub.refuses = True
    assert_refused(post_call(hub, key, "count", n=1))
    count_before = queue_of_hub.count
    assert_refused(post_call(hub, key, "count", n=1))
    assert queue_of_hub.count == count_before  # it was not asked again
    eventually(lambda: probe.count)
    queue_of_hub.comes_back()
    probe.comes_back()
    assert eventually(lambda: post_call(hub, key, "count", n=1).status_code == 200)
    assert not RunningCall.objects.exists()
    cause = Call.objects.order_by("started_at").values_list("cause", flat=True)[0]
    assert cause == "The broker is unavailable: connection refused"
