"""The circuit breaker of a connection to an upstream."""

from dataclasses import dataclass
from time import monotonic
from typing import Final

from tools_app.upstreams.errors import UpstreamFailed

# From this number of failures in a row on, calls are refused until a delay is over, which doubles each time.
FAILURES_TO_OPEN: Final = 3
FIRST_DELAY, MAX_DELAY = 1.0, 60.0


@dataclass
class CircuitBreaker:
    """Refuses calls of an upstream that failed repeatedly, until a delay is over."""

    failures: int = 0
    open_until: float = 0.0
    problem: str = ""

    def check(self, name: str) -> None:
        """Raise UpstreamFailed while the circuit is open."""
        seconds_left = self.open_until - monotonic()
        if seconds_left > 0:
            message = f"The upstream '{name}' is not available. The next attempt is in {max(1, round(seconds_left))} s."
            raise UpstreamFailed(message, self.problem, sent=False)

    def record_failure(self, problem: Exception) -> float:
        """Note a failure. Returns for how many seconds calls are refused now."""
        self.failures += 1
        self.problem = str(problem)
        if self.failures < FAILURES_TO_OPEN:
            return 0.0
        delay: float = min(MAX_DELAY, FIRST_DELAY * 2 ** min(self.failures - FAILURES_TO_OPEN, 10))
        self.open_until = monotonic() + delay
        return delay

    @property
    def is_open(self) -> bool:
        """Whether the last calls failed, so that calls were refused for a while."""
        return self.failures >= FAILURES_TO_OPEN

    def record_success(self) -> None:
        """Close the circuit."""
        self.failures, self.open_until, self.problem = 0, 0.0, ""
