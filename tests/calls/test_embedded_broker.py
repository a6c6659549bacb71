"""The queue of the embedded hub wakes its consumers, which do not poll."""

import threading
from collections.abc import Callable, Iterator
from queue import Queue as Received
from typing import Any, Self

import pytest
from celery import current_app
from kombu import Exchange, Queue
from kombu.message import Message

from tools_app.calls.background import embedded_broker

# Longer than any of these tests may take.
WAIT_SECONDS = 30.0
BROADCAST = Exchange("test-broadcast", type="fanout")


@pytest.fixture(autouse=True)
def nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the polling interval so long that only notifications deliver messages."""
    monkeypatch.setattr(embedded_broker, "LOOK_SECONDS", 10 * WAIT_SECONDS)


class Consumer:
    """Consumes messages in a thread, with at most `at_once` unacknowledged ones."""

    def __init__(self, queue: Queue, at_once: int = 0) -> None:
        self.received: Received[Message] = Received()
        self._ends = threading.Event()
        self._link = current_app.connection()
        self._consumer = self._link.Consumer(queue, on_message=self.received.put)
        self._consumer.qos(prefetch_count=at_once)
        self._consumer.consume()
        self._thread = threading.Thread(target=self._take)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        embedded_broker._changes.note()
        send("the end", self._consumer.queues[0])
        self._thread.join(WAIT_SECONDS)
        self._link.release()

    def next(self) -> Message:
        return self.received.get(timeout=WAIT_SECONDS)

    def _take(self) -> None:
        while not self._ends.is_set():
            self._link.drain_events()


def send(what: str, queue: Queue) -> None:
    with current_app.connection() as link:
        link.Producer().publish(what, exchange=queue.exchange, routing_key=queue.routing_key, declare=[queue])


@pytest.fixture
def queue() -> Iterator[Queue]:
    test_queue = Queue("test-queue", Exchange("test"), routing_key="test-queue")
    yield test_queue
    with current_app.connection() as link:
        test_queue.bind(link.channel()).delete()


def test_the_hub_uses_it() -> None:
    with current_app.connection() as link:
        assert isinstance(link.transport, embedded_broker.Transport)


def test_a_message_is_taken_when_it_comes(queue: Queue) -> None:
    with Consumer(queue) as taker:
        for word in ("one", "two"):
            send(word, queue)
            message = taker.next()
            message.ack()
            assert message.payload == word


def test_a_message_for_everybody_is_taken_too() -> None:
    with Consumer(Queue("test-listener", BROADCAST)) as taker:
        send("all of you", Queue("test-listener", BROADCAST))
        assert taker.next().payload == "all of you"


@pytest.mark.parametrize("done_with", [Message.ack, Message.reject], ids=["ack", "reject"])
def test_who_holds_as_many_as_it_may_takes_the_next_when_one_is_done_with(
    queue: Queue, done_with: Callable[[Any], None]
) -> None:
    with Consumer(queue, at_once=1) as taker:
        send("one", queue)
        first = taker.next()
        send("two", queue)
        assert taker.received.empty()
        done_with(first)
        second = taker.next()
        second.ack()
    assert second.payload == "two"


def test_where_nothing_comes_the_wait_ends_in_time(queue: Queue) -> None:
    with current_app.connection() as link, link.Consumer(queue, on_message=print), pytest.raises(TimeoutError):
        link.drain_events(timeout=0.05)
