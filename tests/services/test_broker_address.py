"""The broker URL of a Redis socket, as Celery parses it."""

from types import SimpleNamespace

from kombu import Connection
from kombu.transport import redis


def test_the_database_of_a_socket_is_the_one_that_is_named() -> None:
    channel = redis.Channel.__new__(redis.Channel)
    client = Connection("redis+socket:///run/redis.sock?virtual_host=7")
    channel.connection = SimpleNamespace(client=client, default_port=6379)

    assert channel._connparams()["db"] == 7
