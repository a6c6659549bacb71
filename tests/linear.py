"""Assertion that work grows linearly with the length of its input, by the CPU time of this thread."""

import gc
import time
from collections.abc import Callable

# Four times the length takes four times as long where work is linear, and 16 times where it is quadratic.
GROWTH = 4
MAX_RATIO = 9.0
# Shorter times are too noisy.
NEGLIGIBLE_SECONDS = 0.004
RUNS = 5


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Fail if `work` on four times `size` takes more than linear growth allows."""
    short, long = _seconds(work, size), _seconds(work, GROWTH * size)
    if long > NEGLIGIBLE_SECONDS:
        assert long <= MAX_RATIO * max(short, NEGLIGIBLE_SECONDS / GROWTH), f"{short:.4f} s, then {long:.4f} s"


def _seconds(work: Callable[[int], object], size: int) -> float:
    """The least CPU time of several runs: noise only ever adds to it."""
    times = []
    gc.disable()
    try:
        for _ in range(RUNS):
            began = time.thread_time()
            work(size)
            times.append(time.thread_time() - began)
            if times[-1] > 1.0:
                break
    finally:
        gc.enable()
    return min(times)
