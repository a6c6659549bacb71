"""What the client of a WebSocket has sent and the server has not parsed, with bounds that hold while it arrives.

RFC 6455 bounds neither the number of fragments of a message (§5.4) nor that of pings (§5.5.2), and servers parse at
once all that they have read.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.request_memory import MESSAGE_MEMORY, MessageMemory, TooMuchMemory, seconds_for
from tools_app.protocol.close_codes import TOO_MANY, TOO_MANY_FRAMES, TOO_SLOW

# How much is parsed before it is known whether the application has messages to receive: the least after a message, and
# twice as much each time that none was complete. Small messages take long for their size, up to 100 us each.
MIN_PARSED_BYTES: Final = 128
MAX_PARSED_BYTES: Final = 4 * 1024
# Above this, nothing is read while nothing is parsed.
MAX_UNPARSED_BYTES: Final = 64 * 1024
# Frames that complete no message are pings, pongs and fragments. Those below this size are counted.
SMALL_BYTES: Final = 512
MAX_SMALL_FRAMES: Final = 100
SMALL_FRAMES_PER_SECOND: Final = 10


class ParsedConnection(Protocol):
    """A WebSocket, as far as its input needs it."""

    def message_bytes(self) -> int:
        """Return how much of an incomplete message is kept."""

    def fail(self, code: int, reason: str) -> None:
        """Close the connection."""

    def pause_reading(self) -> None:
        """Read nothing from the client."""

    def resume_reading(self) -> None:
        """Read again."""


class WebSocketInput:
    """The received bytes of one WebSocket, which `parse` gets in pieces."""

    def __init__(self, connection: ParsedConnection, parse: Callable[[bytes], None], max_message_bytes: int) -> None:
        self._connection = connection
        self._parse = parse
        self._max_message_bytes = max_message_bytes
        self._loop = asyncio.get_event_loop()
        self._unparsed = bytearray()
        self._parsed_bytes = MIN_PARSED_BYTES
        self._is_parsing = False
        self._is_paused = False
        self._is_over = False
        self._memory = MessageMemory()
        self._admitting: asyncio.Task[None] | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._frames = 0.0
        self._frames_at = self._loop.time()

    @property
    def is_stopped(self) -> bool:
        """Whether what has arrived, such as the answer to a ping, may be unparsed."""
        return self._is_paused or self._admitting is not None

    def announce(self, scope: Any) -> None:
        """Tell the application where the memory of large messages is counted."""
        scope[MESSAGE_MEMORY] = self._memory

    def receive(self, data: bytes) -> None:
        """Receive bytes."""
        if not self._is_over:
            self._unparsed += data
            self._parse_on()
            self._pause_reading_if_stopped()

    def pause(self) -> None:
        """Parse nothing until `resume`: the application has messages to receive."""
        self._is_paused = True

    def resume(self) -> None:
        """Parse what has arrived meanwhile."""
        self._is_paused = False
        self._admit_if_large()
        self._parse_on()
        self._read_or_not()

    def message_received(self) -> None:
        """Called when a message is complete."""
        self._memory.complete()
        self._parsed_bytes = MIN_PARSED_BYTES
        self._stop_timeout()

    def frame_received(self, size: int = 0) -> None:
        """Count a frame that completes no message. Too many small ones close the connection."""
        if size >= SMALL_BYTES:
            return
        now = self._loop.time()
        self._frames = max(0.0, self._frames - (now - self._frames_at) * SMALL_FRAMES_PER_SECOND) + 1
        self._frames_at = now
        if self._frames > MAX_SMALL_FRAMES:
            self._end(TOO_MANY_FRAMES, "Too many pings or small fragments.")

    def stop(self) -> None:
        """Parse nothing more: the connection is closed."""
        self._is_over = True
        self._unparsed.clear()
        self._stop_timeout()
        if self._admitting is not None:
            self._admitting.cancel()

    def _parse_on(self) -> None:
        if self._is_parsing:
            return
        self._is_parsing = True
        try:
            while self._unparsed and not self.is_stopped:
                size = self._parsed_bytes
                self._parsed_bytes = min(2 * size, MAX_PARSED_BYTES)
                piece = bytes(self._unparsed[:size])
                del self._unparsed[:size]
                self._parse(piece)
                self._admit_if_large()
        finally:
            self._is_parsing = False

    def _admit_if_large(self) -> None:
        """Hold memory for a large message, but not while the rest of it is not read: its time would run meanwhile."""
        if self._is_over or self.is_stopped or self._memory.is_admitted:
            return
        if self._connection.message_bytes() > LARGE_BYTES:
            self._admitting = self._loop.create_task(self._admit())

    def _read_or_not(self) -> None:
        """Read again, unless nothing is parsed. Called when something that may have paused reading is over."""
        if self.is_stopped and not self._is_over:
            self._pause_reading_if_stopped()
        else:
            self._connection.resume_reading()

    def _pause_reading_if_stopped(self) -> None:
        """Read nothing more while nothing is parsed and much is unparsed."""
        if self._is_over:
            return
        if self._admitting is not None or (self._is_paused and len(self._unparsed) > MAX_UNPARSED_BYTES):
            self._connection.pause_reading()

    async def _admit(self) -> None:
        """Wait until the tenant has memory for a large message, and limit the time in which the rest arrives."""
        try:
            await self._memory.admit(self._max_message_bytes)
        except TooMuchMemory as problem:
            self._end(TOO_MANY, str(problem))
            return
        finally:
            self._admitting = None
        self._stop_timeout()
        self._timeout = self._loop.call_later(
            seconds_for(self._max_message_bytes), self._end, TOO_SLOW, "The message took too long."
        )
        self._parse_on()
        self._read_or_not()

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _end(self, code: int, reason: str) -> None:
        if not self._is_over:
            self.stop()
            # A connection that is closed with unread bytes is reset, and the client does not learn why.
            self._connection.resume_reading()
            self._connection.fail(code, reason)
