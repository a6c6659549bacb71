"""The embedded hub's channel layer: in memory and thread-safe.

Channels' in-memory layer belongs to one event loop. In the embedded hub, worker threads send notifications to the
server's loop, so each channel here stores the loop that reads it.
"""

import asyncio
from collections import defaultdict
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

from channels.layers import BaseChannelLayer

Message = dict[str, Any]


class _Inbox(NamedTuple):
    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Message]


class LocalChannelLayer(BaseChannelLayer):
    """Delivers within one process, at most once like every channel layer: a full inbox drops messages."""

    extensions = ["groups", "flush"]

    def __init__(self, capacity: int = 1000, expiry: int = 60, **options: Any) -> None:
        super().__init__(expiry=expiry, capacity=capacity, **options)
        self._lock = Lock()
        self._inboxes: dict[str, _Inbox] = {}
        self._groups: defaultdict[str, set[str]] = defaultdict(set)

    async def new_channel(self, prefix: str = "specific.") -> str:
        """Create a channel that the running loop reads."""
        channel = f"{prefix}inmemory!{uuid4().hex}"
        self._inbox(channel)
        return channel

    async def send(self, channel: str, message: Message) -> None:
        """Send `message` to a channel, from any loop."""
        with self._lock:
            inbox = self._inboxes.get(channel)
        if inbox is not None:
            self._deliver(inbox, message)

    async def receive(self, channel: str) -> Message:
        """Return the next message of a channel."""
        return await self._inbox(channel).queue.get()

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group."""
        with self._lock:
            self._groups[group].add(channel)

    async def group_discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group, and delete the channel."""
        with self._lock:
            self._groups[group].discard(channel)
            self._inboxes.pop(channel, None)

    async def group_send(self, group: str, message: Message) -> None:
        """Send `message` to every channel of a group, from any loop."""
        with self._lock:
            inboxes = [self._inboxes[channel] for channel in self._groups[group] if channel in self._inboxes]
        for inbox in inboxes:
            self._deliver(inbox, message)

    async def flush(self) -> None:
        """Delete all channels and groups."""
        with self._lock:
            self._inboxes.clear()
            self._groups.clear()

    def _inbox(self, channel: str) -> _Inbox:
        with self._lock:
            if channel not in self._inboxes:
                queue: asyncio.Queue[Message] = asyncio.Queue(self.capacity)
                self._inboxes[channel] = _Inbox(asyncio.get_running_loop(), queue)
            return self._inboxes[channel]

    @staticmethod
    def _deliver(inbox: _Inbox, message: Message) -> None:
        def put() -> None:
            if not inbox.queue.full():
                inbox.queue.put_nowait(dict(message))

        if not inbox.loop.is_closed():
            inbox.loop.call_soon_threadsafe(put)
