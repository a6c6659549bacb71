"""How often a call says how far it is: values that come faster than anybody reads them are left out.

The last value is never lost: it is said when its second is over, or at the end. Knows nothing of what a value means,
but that it grows.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any

from tools_app.audit.recorder import RecorderGone
from tools_app.models.config import config

Data = dict[str, Any]


class Pace:
    """Belongs to one call. Safe to use from any thread.

    `later` calls a function after so many seconds, in a thread that must not wait.
    """

    def __init__(self, emit: Callable[[Data], None], later: Callable[[float, Callable[[], None]], None]) -> None:
        self._emit = emit
        self._later = later
        self._most = config.MCPHUB_PROGRESS_PER_SECOND
        self._lock = Lock()
        # Values go out one by one, so that none overtakes a smaller one. Nobody waits for this lock.
        self._speaking = Lock()
        self._last: float | None = None
        self._second = 0.0
        self._count = 0
        self._kept_back: Data | None = None
        self._looks_later = False
        self._closed = False

    def say(self, value: float, data: Data) -> None:
        """Say `data`, or keep it back for now; not if `value` is not above the one before."""
        with self._lock:
            if self._closed or (self._last is not None and value <= self._last):
                return
            self._last, self._kept_back = value, data
            if not self._has_room():
                self._look_later()
                return
        self._say_newest()

    def close(self) -> None:
        """Say what was kept back, and no more: the function is over."""
        with self._lock:
            self._closed = True
        with suppress(RecorderGone):
            self._say_newest()

    def _say_in_time(self) -> None:
        with self._lock:
            self._looks_later = False
            if self._closed or self._kept_back is None:
                return
            self._has_room()
        with suppress(RecorderGone):
            self._say_newest()

    def _say_newest(self) -> None:
        if not self._speaking.acquire(blocking=False):
            with self._lock:
                self._look_later()
            return
        try:
            with self._lock:
                data, self._kept_back = self._kept_back, None
            if data is not None:
                self._emit(data)
        finally:
            self._speaking.release()

    def _look_later(self) -> None:
        if not self._looks_later:
            self._looks_later = True
            self._later(max(0.0, self._second + 1.0 - monotonic()), self._say_in_time)

    def _has_room(self) -> bool:
        now = monotonic()
        if now - self._second >= 1.0:
            self._second, self._count = now, 0
        self._count += 1
        return bool(self._count <= self._most)
