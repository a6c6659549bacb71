"""Publishing of notifications: the only bridge from synchronous code to the channel layer.

A notification means "check the database" for one topic (`call:<id>`, `catalog:<tenant>`, `cancel:<call>`). It may
carry what is in the database, encrypted, so that subscribers need not read it. It may be lost, so nothing depends on
it: subscribers also poll. One thread per process owns the event loop that uses the layer; topics that are published
while it is busy are sent together.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable

from channels.layers import get_channel_layer

from tools_app.core.process.runtime import Service
from tools_app.core.process.thread_loops import LoopThread

log = logging.getLogger(__name__)

GROUP = "notifications"
MESSAGE_TYPE = "notification"
CLOSE_SECONDS = 2.0
# The timeout of one send, and the maximum number of topics that wait meanwhile; others are dropped.
SEND_SECONDS = 5.0
MAX_TOPICS = 10_000
# Payloads that wait are at most this large together; without its payload, a notification is only its topic.
MAX_PAYLOAD_BYTES = 1024 * 1024


class Publisher:
    """A thread with an event loop that sends topics and their payloads, one message at a time.

    At most MAX_TOPICS wait, with payloads of MAX_PAYLOAD_BYTES.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, list[bytes]] = {}
        self._payload_bytes = 0
        self._is_away = False
        self._sending: asyncio.Task[None] | None = None
        self._loop = LoopThread("notifications", _close_layer)

    def notify(self, notifications: Iterable[tuple[str, bytes]]) -> None:
        """Send topics soon, each with its payload if that is not empty. Thread-safe."""
        with self._lock:
            is_idle = not self._pending
            for topic, payload in notifications:
                if len(self._pending) < MAX_TOPICS or topic in self._pending:
                    payloads = self._pending.setdefault(topic, [])
                    self._payload_bytes += len(payload)
                    if payload and self._payload_bytes <= MAX_PAYLOAD_BYTES:
                        payloads.append(payload)
        if is_idle:
            self._loop.call_soon(self._wake)

    def close(self) -> None:
        """Stop the thread."""
        self._loop.stop(CLOSE_SECONDS)

    def _wake(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        """Send until no topic is left. Topics published meanwhile are sent together."""
        while pending := self._take():
            was_away, self._is_away = self._is_away, False
            payloads = {topic: carried for topic, carried in pending.items() if carried}
            message = {"type": MESSAGE_TYPE, "topics": list(pending), "payloads": payloads}
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await get_channel_layer().group_send(GROUP, message)
            except Exception as problem:  # noqa: BLE001 - after any error, subscribers poll
                self._is_away = True
                if not was_away:
                    log.warning("The channel layer is unavailable; subscribers poll the database: %r", problem)
            else:
                if was_away:
                    log.warning("The channel layer is available again")

    def _take(self) -> dict[str, list[bytes]]:
        with self._lock:
            pending, self._pending, self._payload_bytes = self._pending, {}, 0
        return pending


async def _close_layer() -> None:
    """Close the layer's connections of this loop, which the Redis layer only supports while the loop runs."""
    layer = get_channel_layer()
    if hasattr(layer, "close_pools"):
        await layer.close_pools()


# The publisher of this process.
publisher = Service(Publisher, Publisher.close)


def notify(*topics: str) -> None:
    """Tell every process to check the database for `topics`. Returns at once. Thread-safe."""
    publisher().notify([(topic, b"") for topic in topics])


def notify_with_payloads(notifications: Iterable[tuple[str, bytes]]) -> None:
    """Tell every process about topics, each with its payload, which is empty or encrypted. Thread-safe."""
    publisher().notify(notifications)
