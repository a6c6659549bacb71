"""The process's listener for notifications, which wakes the subscriptions of their topics in memory.

Requests create no channels. While the channel layer is unavailable, subscribers poll and the listener retries.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from channels.layers import get_channel_layer

from tools_app.core.notifications.publish import GROUP

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
# Of one subscriber that does not take them.
MAX_PAYLOADS = 1000
RETRY_SECONDS = 1.0


class Subscription:
    """Wakes on a notification of one of its topics, and collects the details and payloads of notifications."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._details: set[str] = set()
        self._payloads: list[bytes] = []

    def notify(self, detail: str = "", payloads: Sequence[bytes] = ()) -> None:
        """Wake the subscriber. Payloads beyond MAX_PAYLOADS are dropped."""
        if detail:
            self._details.add(detail)
        if len(self._payloads) < MAX_PAYLOADS:
            self._payloads += payloads
        self._event.set()

    def take_details(self) -> set[str]:
        """Return the details received since the last call."""
        details, self._details = self._details, set()
        return details

    def take_payloads(self) -> list[bytes]:
        """Return the payloads received since the last call, in order."""
        payloads, self._payloads = self._payloads, []
        return payloads

    async def wait(self, seconds: float = POLL_SECONDS) -> bool:
        """Wait for a notification, at most `seconds`: True if one came. Check the database in either case."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        is_notified = self._event.is_set()
        self._event.clear()
        return is_notified


class TopicListener:
    """The listener of one event loop."""

    def __init__(self) -> None:
        self._subscriptions: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._handlers: dict[str, Callable[[str], None]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def subscribe(self, *topics: str) -> Iterator[Subscription]:
        """Subscribe to `topics` for the duration of the block."""
        self.start()
        subscription = Subscription()
        for topic in topics:
            self._subscriptions[topic].add(subscription)
        try:
            yield subscription
        finally:
            for topic in topics:
                self._subscriptions[topic].discard(subscription)
                if not self._subscriptions[topic]:
                    del self._subscriptions[topic]

    def handle(self, kind: str, handler: Callable[[str], None]) -> None:
        """Call `handler` for every topic `kind:…`, with the part after the colon."""
        self._handlers[kind] = handler

    def start(self) -> None:
        """Start listening, unless already started."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def stop(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def notify(self, topic: str, payloads: Sequence[bytes] = ()) -> None:
        """Wake the subscriptions of `topic` in this process. The part after a "|" is a detail for them."""
        name, _, detail = topic.partition("|")
        for subscription in self._subscriptions.get(name, ()):
            subscription.notify(detail, payloads)
        kind, _, rest = name.partition(":")
        if handler := self._handlers.get(kind):
            handler(rest)

    async def _listen(self) -> None:
        while True:
            try:
                await self._receive()
            except Exception as problem:  # noqa: BLE001 - the layer may be away for a while
                log.warning("The channel layer is away, waiters poll until it is back: %s", problem)
                await asyncio.sleep(RETRY_SECONDS)

    async def _receive(self) -> None:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(GROUP, channel)
        try:
            while True:
                message = await layer.receive(channel)
                for topic in message["topics"]:
                    self.notify(topic, message["payloads"].get(topic, ()))
        finally:
            with suppress(Exception):
                await layer.group_discard(GROUP, channel)
