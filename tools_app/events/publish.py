"""Ringing doorbells: the only place that crosses from synchronous code to the channel layer.

A doorbell says "look at the store" about one topic (`call:<id>`, `catalog:<tenant>`, `cancel:<call>`). It may be
lost, so nothing depends on it: whoever waits also polls. One thread per process owns the event loop that talks to
the layer; what is rung while it is busy goes out together.
"""

import asyncio
import logging
import os
import threading

from channels.layers import get_channel_layer

log = logging.getLogger(__name__)

GROUP = "doorbells"
MESSAGE_TYPE = "doorbell"
CLOSE_SECONDS = 2.0


class Publisher:
    """A thread with a loop of its own that sends what is rung."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rung: dict[str, None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="doorbells", daemon=True)
        self._thread.start()

    def ring(self, *topics: str) -> None:
        """Send `topics` soon. From any thread."""
        with self._lock:
            asleep = not self._rung
            self._rung.update(dict.fromkeys(topics))
        if asleep:
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """Stop the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(_close_layer())
        self._loop.close()

    def _wake(self) -> None:
        task = self._loop.create_task(self._send())
        task.add_done_callback(_report)

    async def _send(self) -> None:
        with self._lock:
            topics, self._rung = list(self._rung), {}
        layer = get_channel_layer()
        if layer is not None and topics:
            await layer.group_send(GROUP, {"type": MESSAGE_TYPE, "topics": topics})


async def _close_layer() -> None:
    """Close the layer's connections of this loop; the Redis layer can only be asked while its loop runs."""
    layer = get_channel_layer()
    if hasattr(layer, "close_pools"):
        await layer.close_pools()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()):
        log.warning("A doorbell was lost, whoever waits will poll: %s", problem)


_publishers: dict[int, Publisher] = {}
_starting = threading.Lock()


def ring(*topics: str) -> None:
    """Tell every process to look at the store about `topics`. Returns at once, from any thread."""
    with _starting:
        publisher = _publishers.get(os.getpid())
        if publisher is None:
            publisher = _publishers[os.getpid()] = Publisher()
    publisher.ring(*topics)


def shutdown() -> None:
    """Stop this process's publisher. The next `ring` starts a new one."""
    with _starting:
        publisher = _publishers.pop(os.getpid(), None)
    if publisher is not None:
        publisher.close()
