"""A bound on what clients of WebSockets may have a server parse, under every server.

RFC 6455 bounds neither the fragments of a message (§5.4) nor pings (§5.5.2), and no server passes them on to its
application: they are counted where their bytes arrive.
"""

import time
from collections.abc import Callable
from typing import Final

# How much of a connection a server reads, and so parses, before others have their turn. A message of a few bytes takes
# as long as a large one.
READ_BYTES: Final = 4 * 1024
# Control frames and fragments below this size are counted.
SMALL_BYTES: Final = 512
MAX_SMALL_FRAMES: Final = 100
SMALL_FRAMES_PER_SECOND: Final = 10


class FrameLimit:
    """Passes what a client sends to `receive`, until there are too many small frames; then it calls `refuse`, once."""

    def __init__(self, receive: Callable[[bytes], None], refuse: Callable[[], object]) -> None:
        self._pass_on = receive
        self._refuse = refuse
        # The beginning of a head that has not arrived completely, and how far away the next head is.
        self._head = b""
        self._next_head = 0
        self._count = 0.0
        self._counted_at = time.monotonic()

    def receive(self, data: bytes) -> None:
        """Receive bytes. Once a client is refused, it is still read, so that it can learn why."""
        if self._count > MAX_SMALL_FRAMES:
            return
        small_frames = self._small_frames(data)
        if small_frames:
            now = time.monotonic()
            earlier = self._count - (now - self._counted_at) * SMALL_FRAMES_PER_SECOND
            self._count, self._counted_at = max(earlier, 0) + small_frames, now
        if self._count > MAX_SMALL_FRAMES:
            self._refuse()
        else:
            self._pass_on(data)

    def _small_frames(self, data: bytes) -> int:
        """Return how many small frames begin in `data` that complete no message (RFC 6455, §5.2)."""
        data, position, count = self._head + data, self._next_head, 0
        while len(data) >= position + 2:
            first, length = data[position], data[position + 1] & 0x7F
            size_bytes = {126: 2, 127: 8}.get(length, 0)
            if size_bytes:
                if len(data) < position + 2 + size_bytes:
                    break
                length = int.from_bytes(data[position + 2 : position + 2 + size_bytes])
            is_control, is_final = first & 0x08, first & 0x80
            count += length < SMALL_BYTES and bool(is_control or not is_final)
            # The length is followed by a mask of four bytes.
            position += 2 + size_bytes + 4 + length
        self._head, self._next_head = data[position:], max(position - len(data), 0)
        return count
