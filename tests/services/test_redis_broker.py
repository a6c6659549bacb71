"""A worker returns the messages that it has reserved, and survives the loss of Redis while it holds some."""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue

from mcphub.celery import app

WAIT_SECONDS = 10


@pytest.fixture
def queue() -> Queue:
    name = f"test-{uuid.uuid4().hex}"
    return Queue(name, Exchange(name), routing_key=name)


@pytest.fixture
def connection(queue: Queue) -> Iterator[Connection]:
    assert app.main == "mcphub"  # importing it makes the transport known
    with Connection(os.environ["REDIS_URL"], transport_options={"priority_steps": [0]}) as connection:
        yield connection
        connection.default_channel.queue_delete(queue.name)


def reserved(connection: Connection, queue: Queue) -> Any:
    """Publish a message and return the channel that has received but not acknowledged it."""
    connection.Producer().publish({"call": 1}, exchange=queue.exchange, routing_key=queue.name, declare=[queue])
    channel = connection.channel()
    got: list[object] = []
    with connection.Consumer(queue, channel=channel, callbacks=[lambda body, _message: got.append(body)]):
        while not got:
            connection.drain_events(timeout=WAIT_SECONDS)
    return channel


def test_a_reserved_message_is_given_back_when_its_worker_stops(connection: Connection, queue: Queue) -> None:
    reserved(connection, queue).close()
    with connection.SimpleQueue(queue) as again:
        assert again.get(timeout=WAIT_SECONDS).payload == {"call": 1}


def test_redis_keeps_no_second_copy_of_a_message(connection: Connection, queue: Queue) -> None:
    channel = reserved(connection, queue)
    with channel.conn_or_acquire() as client:
        assert client.hlen("unacked") == 0


def test_a_channel_whose_connection_is_closed_already_can_be_closed(connection: Connection, queue: Queue) -> None:
    channel = reserved(connection, queue)
    channel.connection.client = None
    channel.qos.restore_unacked_once()
    assert not channel.qos._delivered
