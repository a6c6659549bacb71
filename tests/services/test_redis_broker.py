"""A worker that stops returns the messages that it has reserved, of which Redis keeps no second copy."""

import os
import uuid

import redis
from django.conf import settings
from kombu import Connection, Exchange, Queue

WAIT_SECONDS = 10


def test_a_reserved_message_is_given_back_when_its_worker_stops() -> None:
    url, name = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"), f"test-{uuid.uuid4().hex}"
    queue = Queue(name, Exchange(name), routing_key=name)
    with Connection(url, transport_options=settings.REDIS_BROKER_OPTIONS) as connection:
        connection.Producer().publish({"call": 1}, exchange=queue.exchange, routing_key=name, declare=[queue])
        channel, reserved = connection.channel(), list[object]()
        with connection.Consumer(queue, channel=channel, callbacks=[lambda body, _message: reserved.append(body)]):
            while not reserved:
                connection.drain_events(timeout=WAIT_SECONDS)
        with redis.Redis.from_url(url) as server:
            assert not any(b"call" in copy for copy in server.hvals("unacked"))
        channel.close()
        with connection.SimpleQueue(queue) as again:
            assert again.get(timeout=WAIT_SECONDS).payload == {"call": 1}
            connection.default_channel.queue_delete(name)
