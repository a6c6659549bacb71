"""The embedded hub's broker: kombu's in-memory transport, with consumers that are woken by messages.

kombu's own transport polls every queue. At the rate that a call's first progress needs, an idle hub used 4% of a
processor core.

kombu documents the methods that are overridden here, and `TRANSPORT_ALIASES`, by which `memory://` means this one.
"""

import threading
from math import inf
from time import monotonic
from typing import Any

from kombu.transport import memory

# A change that is not counted here is noticed within this time.
LOOK_SECONDS = 1.0


class _Changes:
    """Counts changes to the queues, so that none is missed between a check and a wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def note(self) -> None:
        """Count a change and wake all waiting threads."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Wait until the count differs from `seen`, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != seen, seconds)


_changes = _Changes()


class Channel(memory.Channel):
    """Counts each new message, and each settled one, as a worker's prefetch count is limited."""

    def basic_publish(self, *args: Any, **options: Any) -> None:
        """Add a message to the queues that its exchange has for it."""
        super().basic_publish(*args, **options)
        _changes.note()

    def basic_ack(self, *args: Any, **options: Any) -> None:
        """Acknowledge a message."""
        super().basic_ack(*args, **options)
        _changes.note()

    def basic_reject(self, *args: Any, **options: Any) -> None:
        """Reject a message, or requeue it."""
        super().basic_reject(*args, **options)
        _changes.note()

    def basic_qos(self, *args: Any, **options: Any) -> None:
        """Set the prefetch count."""
        super().basic_qos(*args, **options)
        _changes.note()


class Transport(memory.Transport):
    """Transport in the memory of one process."""

    Channel = Channel

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:
        """Receive one message within `timeout` seconds, or wait indefinitely. Raises TimeoutError."""
        end = inf if timeout is None else monotonic() + timeout
        while True:
            seen = _changes.count
            try:
                super().drain_events(connection, timeout=0)
            except TimeoutError:
                left = end - monotonic()
                if left <= 0:
                    raise
                _changes.wait(seen, min(left, LOOK_SECONDS))
            else:
                return
