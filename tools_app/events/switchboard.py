"""One listener per process hears the doorbells and wakes those who wait for their topics, in memory.

No request makes a channel of its own. When the channel layer is away, waiters live by their slow poll, and the
listener comes back by itself.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from channels.layers import get_channel_layer

from tools_app.events.publish import GROUP

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0


class Watch:
    """Wakes when one of its topics is rung, and remembers the details that came with it."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._details: set[str] = set()

    def ring(self, detail: str = "") -> None:
        """Wake whoever waits."""
        if detail:
            self._details.add(detail)
        self._rung.set()

    def heard(self) -> set[str]:
        """The details since somebody asked last."""
        details, self._details = self._details, set()
        return details

    async def wait(self, seconds: float = POLL_SECONDS) -> bool:
        """Wait for a doorbell, at most `seconds`: True if it rang. Either way it is time to look at the store."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        rang = self._rung.is_set()
        self._rung.clear()
        return rang


class Switchboard:
    """The listener of one event loop."""

    def __init__(self) -> None:
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)
        self._handlers: dict[str, Callable[[str], None]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, *topics: str) -> Iterator[Watch]:
        """A watch over `topics` for as long as the block lasts."""
        self.start()
        watch = Watch()
        for topic in topics:
            self._watches[topic].add(watch)
        try:
            yield watch
        finally:
            for topic in topics:
                self._watches[topic].discard(watch)
                if not self._watches[topic]:
                    del self._watches[topic]

    def handle(self, kind: str, handler: Callable[[str], None]) -> None:
        """Call `handler` with what follows the colon of every topic `kind:…`."""
        self._handlers[kind] = handler

    def start(self) -> None:
        """Listen, if nobody does yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def stop(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def ring(self, topic: str) -> None:
        """Wake the watches of `topic` in this process; what follows a "|" in it is a detail for them."""
        name, _, detail = topic.partition("|")
        for watch in self._watches.get(name, ()):
            watch.ring(detail)
        kind, _, rest = name.partition(":")
        if handler := self._handlers.get(kind):
            handler(rest)

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except Exception as problem:  # noqa: BLE001 - the layer may be away for a while
                log.warning("The channel layer is away, waiters poll until it is back: %s", problem)
                await asyncio.sleep(RETRY_SECONDS)

    async def _hear(self) -> None:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(GROUP, channel)
        try:
            while True:
                message = await layer.receive(channel)
                for topic in message["topics"]:
                    self.ring(topic)
        finally:
            with suppress(Exception):
                await layer.group_discard(GROUP, channel)
