"""The event loop's time that requests use: measured per step, and estimated where it cannot be measured."""

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

# Bounds of the unmeasured time per unit of overhead (parsing, task, connection). A usual request is one unit.
MIN_OVERHEAD_SECONDS: Final = 0.00005
MAX_OVERHEAD_SECONDS: Final = 0.002
# The weight of the newest estimate.
OVERHEAD_WEIGHT: Final = 0.2


class RequestOverhead:
    """The unmeasured time of requests, estimated per unit while several tenants are busy.

    It differs by server and is outside the request's coroutine: the head is parsed before one exists.
    """

    def __init__(self, meter: Callable[[], float]) -> None:
        self.meter = meter
        self._seconds = MIN_OVERHEAD_SECONDS
        self._units = 0.0
        self._measured = 0.0
        self._since: float | None = None

    def of(self, units: float) -> float:
        """Count `units` and return their overhead in seconds."""
        self._units += units
        return self._seconds * units

    def add(self, seconds: float) -> None:
        """Add time that was measured and charged."""
        self._measured += seconds

    def estimate(self) -> None:
        """Update the estimate from the units and times since the last call."""
        now = self.meter()
        if self._since is not None and self._units:
            newest = (now - self._since - self._measured) / self._units
            seconds = self._seconds + OVERHEAD_WEIGHT * (newest - self._seconds)
            self._seconds = min(max(seconds, MIN_OVERHEAD_SECONDS), MAX_OVERHEAD_SECONDS)
        if self._since is None or self._units:
            self._since, self._units, self._measured = now, 0.0, 0.0

    def pause(self) -> None:
        """Ignore the time until the next `estimate`, because nothing is measured."""
        self._since = None


async def measured_by(overhead: RequestOverhead, work: Coroutine[Any, Any, T], charge: Callable[[float], None]) -> T:
    """Run `work`, and call `charge` with the seconds that each of its steps takes on the loop.

    Tasks need a coroutine: `_stepwise` alone is a generator, which `create_task` refuses from Python 3.12 on.
    """
    return await _stepwise(overhead, work, charge)


@types.coroutine
def _stepwise(
    overhead: RequestOverhead, work: Coroutine[Any, Any, T], charge: Callable[[float], None]
) -> Generator[Any, Any, T]:
    meter = overhead.meter
    problem: BaseException | None = None
    while True:
        began = meter()
        try:
            waits_for = work.send(None) if problem is None else work.throw(problem)
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            seconds = meter() - began
            charge(seconds)
            overhead.add(seconds)
        problem = None
        try:
            yield waits_for
        except BaseException as thrown:  # noqa: BLE001 - it is the work's own to handle
            problem = thrown
