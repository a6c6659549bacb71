"""How often a call says how far it is: values that come faster than anybody reads them are left out.

The last value is never lost. Knows nothing of what a value means, but that it grows.
"""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Any, Final

MOST_A_SECOND: Final = 100

Data = dict[str, Any]


class Pace:
    """Belongs to one call. Safe to use from any thread."""

    def __init__(self, emit: Callable[[Data], None]) -> None:
        self._emit = emit
        self._lock = Lock()
        self._last: float | None = None
        self._second = 0.0
        self._count = 0
        self._kept_back: Data | None = None

    def say(self, value: float, data: Data) -> None:
        """Say `data`, or keep it back for now; not if `value` is not above the one before."""
        with self._lock:
            if self._last is not None and value <= self._last:
                return
            self._last = value
            if not self._has_room():
                self._kept_back = data
                return
            self._kept_back = None
        self._emit(data)

    def finish(self) -> None:
        """Say what was kept back."""
        with self._lock:
            data, self._kept_back = self._kept_back, None
        if data is not None:
            self._emit(data)

    def _has_room(self) -> bool:
        now = monotonic()
        if now - self._second >= 1.0:
            self._second, self._count = now, 0
        self._count += 1
        return self._count <= MOST_A_SECOND
