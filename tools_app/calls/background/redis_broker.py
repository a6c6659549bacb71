"""kombu's Redis transport without its copies of messages, for Celery workers that survive a lost connection.

kombu keeps a second copy of each message in Redis until it is acknowledged, in two transactions that cost more than the
message. The database has the calls: those that no worker claimed are queued again. A worker that stops gives back what
it has reserved; one that has lost Redis does not try.

These parts are not public API and are pinned by `tests/server/test_contracts.py`: `ack_emulation`, `QoS` and
`_create_client` of the channel, `restore_unacked` and `_delivered` of its `QoS`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from kombu.transport import redis, virtual


class QoS(virtual.QoS):
    """Remembers the reserved messages in memory."""

    def restore_unacked(self) -> Any:
        """Give back messages that were delivered and not acknowledged, unless the connection is closed."""
        if self.channel.connection.client is not None:
            return super().restore_unacked()
        assert self._delivered is not None, "it is set before anything is delivered"
        self._delivered.clear()
        return []


class Channel(redis.Channel):
    """A channel with one client, where kombu's creates one for each command."""

    ack_emulation = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.QoS = QoS  # type: ignore[assignment] # what the base class sets without acknowledgements

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Use `client`, or the channel's own."""
        yield client or self._client

    @cached_property
    def _client(self) -> Any:
        return self._create_client()  # type: ignore[attr-defined] # its stub lacks it


class Transport(redis.Transport):
    """The transport with these channels."""

    Channel = Channel
