"""The embedded hub's broker: kombu's in-memory transport, but whoever takes messages is woken by them.

kombu's own asks every queue again and again. At the pace that a call's first progress needs, that took an idle hub a
twenty-fifth of a processor core.
"""

import threading
from queue import Empty
from time import monotonic
from typing import Any

from kombu.transport import memory

# Should anything that lets a worker take more not be noticed here, it is noticed within this time.
LOOK_SECONDS = 1.0


class _Changes:
    """Counts what happens to the queues, so that nothing is missed between a look and a wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def note(self) -> None:
        """Something may be there to be taken now."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Wait for more changes than were `seen`, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != seen, seconds)


_changes = _Changes()


class Channel(memory.Channel):
    """Tells of each message that comes, and of each that is done with: a worker takes only so many at a time."""

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        super()._put(queue, message, **options)
        _changes.note()

    def _put_fanout(self, exchange: str, message: Any, routing_key: str | None = None, **options: Any) -> None:
        super()._put_fanout(exchange, message, routing_key, **options)
        _changes.note()

    def basic_ack(self, *args: Any, **options: Any) -> None:
        """Note that a message is done with."""
        super().basic_ack(*args, **options)
        _changes.note()

    def basic_reject(self, *args: Any, **options: Any) -> None:
        """Note that a message is done with, or queued again."""
        super().basic_reject(*args, **options)
        _changes.note()

    def basic_qos(self, *args: Any, **options: Any) -> None:
        """Set how many messages may be held at a time."""
        super().basic_qos(*args, **options)
        _changes.note()


class Transport(memory.Transport):
    """In the memory of one process."""

    Channel = Channel

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:  # noqa: ARG002 - kombu's
        """Take one message, waiting for it for `timeout` seconds at most, or for ever. Raises TimeoutError."""
        cycle = self.cycle
        assert cycle is not None
        end = None if timeout is None else monotonic() + timeout
        while True:
            seen = _changes.count
            try:
                cycle.get(self._deliver, timeout=timeout)
            except Empty:
                left = LOOK_SECONDS if end is None else end - monotonic()
                if left <= 0:
                    raise TimeoutError from None
                _changes.wait(seen, min(left, LOOK_SECONDS))
            else:
                return
