"""Circuit breakers: no request waits for a server that is known to be unavailable."""

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from tools_app.core.process.threads import start_thread

log = logging.getLogger(__name__)

PROBE_SECONDS: Final = 1.0
FIRST_DELAY, MAX_DELAY = 1.0, 60.0


class CircuitBreaker:
    """Open from so many failures in a row on, until a success.

    With a `probe`, every caller is refused until that succeeds. It is called every PROBE_SECONDS in a separate thread,
    raises while the server is unavailable, and must have a timeout. The thread is the open state: a forked child has no
    such thread and starts closed. `name` is the first word of its log messages.

    Without one, callers are refused for a delay, which doubles with each further failure. Then they may try.
    """

    def __init__(
        self,
        name: str,
        probe: Callable[[], object] | None = None,
        consequence: str = "",
        *,
        failures_to_open: int = 1,
    ) -> None:
        self._name = name
        self._probe = probe
        self._consequence = consequence
        self._failures_to_open = failures_to_open
        self._lock = threading.Lock()
        self._prober: threading.Thread | None = None
        self._stopping = threading.Event()
        self._refuses_until = 0.0
        self.failures = 0
        # The last failure, as text.
        self.problem = ""

    @property
    def is_open(self) -> bool:
        """Whether the server is known to be unavailable."""
        if self._probe is not None:
            return self._prober is not None and self._prober.is_alive()
        return self.failures >= self._failures_to_open

    @property
    def seconds_refused(self) -> float:
        """For how many more seconds callers are refused; of a circuit without a probe."""
        return max(0.0, self._refuses_until - monotonic())

    def trip(self, problem: object) -> float:
        """Count a failure, and return for how many seconds callers are refused now."""
        with self._lock:
            if self._probe is not None:
                if not self.is_open:
                    log.error("%s is unavailable%s: %s", self._name, self._consequence, problem)
                    self._prober = start_thread("circuit-probe", self._probe_until_back)
                return PROBE_SECONDS
            self.failures += 1
            self.problem = str(problem)
            if not self.is_open:
                return 0.0
            delay: float = min(MAX_DELAY, FIRST_DELAY * 2 ** min(self.failures - self._failures_to_open, 10))
            self._refuses_until = monotonic() + delay
            return delay

    def reset(self) -> None:
        """Note a success, which closes a circuit without a probe."""
        self.failures, self._refuses_until, self.problem = 0, 0.0, ""

    def close(self) -> None:
        """Stop probing, because the user of the circuit has stopped."""
        self._stopping.set()

    def _probe_until_back(self) -> None:
        assert self._probe is not None
        while not self._stopping.wait(PROBE_SECONDS):
            try:
                self._probe()
            except Exception as problem:  # noqa: BLE001 - after any error the server is still unavailable
                log.debug("%s is still unavailable: %s", self._name, problem)
            else:
                log.warning("%s is available again", self._name)
                return
