"""A circuit breaker for a server that the hub needs: no caller waits while it is known to be unavailable."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from tools_app.core.threads import start_thread

log = logging.getLogger(__name__)

PROBE_SECONDS: Final = 1.0


class CircuitBreaker:
    """Open from the first failure until `probe` succeeds.

    `probe` is called every PROBE_SECONDS in a separate thread, raises while the server is unavailable, and must have
    a timeout. Callers never probe. The thread is the open state: a forked child has no such thread and starts closed.
    `name` is the first word of log messages.
    """

    def __init__(self, name: str, probe: Callable[[], object], consequence: str = "") -> None:
        self._name = name
        self._probe = probe
        self._consequence = consequence
        self._lock = threading.Lock()
        self._prober: threading.Thread | None = None
        self._stopping = threading.Event()

    @property
    def is_open(self) -> bool:
        """Whether the server is known to be unavailable."""
        return self._prober is not None and self._prober.is_alive()

    def trip(self, problem: object) -> None:
        """Open the circuit because of `problem` and start probing. Does nothing if it is already open."""
        with self._lock:
            if self.is_open:
                return
            log.error("%s is unavailable%s: %s", self._name, self._consequence, problem)
            self._prober = start_thread("circuit-probe", self._probe_until_back)

    def close(self) -> None:
        """Stop probing, because the user of the circuit has stopped."""
        self._stopping.set()

    def _probe_until_back(self) -> None:
        while not self._stopping.wait(PROBE_SECONDS):
            try:
                self._probe()
            except Exception as problem:  # noqa: BLE001 - after any error the server is still unavailable
                log.debug("%s is still unavailable: %s", self._name, problem)
            else:
                log.warning("%s is available again", self._name)
                return
