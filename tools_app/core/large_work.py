"""Work whose time grows with a body or a result: in a thread, so that no other request of the event loop waits for it.

What is small is done at once: to hand it to a thread would take longer.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from tools_app.core import fair_scheduler
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.fair_threads import FairThreads
from tools_app.core.runtime import Service
from tools_app.telemetry import log_context

T = TypeVar("T")

# For all tenants; a tenant has one at most. What waits for them is bounded by the memory of large results.
THREADS: Final = 2
TEXTS: Final = (str, bytes, bytearray, memoryview)
LISTS: Final = (list, tuple, set, frozenset, deque)
NUMBERS: Final = {int, float, bool, type(None)}
NUMBER_BYTES: Final = 4

_threads = Service(lambda: FairThreads("large-work", THREADS), FairThreads.stop)


async def run(size: int, work: Callable[[], T]) -> T:
    """Return the result of `work` on `size` bytes. Its time is charged to the current request.

    A thread goes on with work whose task was cancelled. Raises what `work` raises.
    """
    if size <= LARGE_BYTES:
        return work()
    spent, result = await _threads().run(log_context.tenant(), partial(copy_context().run, _timed, work))
    fair_scheduler.charge(spent)
    return result


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.thread_time()
    result = work()
    return time.thread_time() - began, result


def size_of(value: Any) -> int:
    """Estimate the bytes of a value as JSON, or return that they are more than LARGE_BYTES.

    It looks at no more parts of the value than that. This is the path of every call.
    """
    try:
        return _size(value, 0)
    except RecursionError:
        return LARGE_BYTES + 1


def _size(value: Any, size: int) -> int:
    """Add the size of a value."""
    if isinstance(value, dict):
        size += 2 * len(value)
        if size <= LARGE_BYTES:
            size = _size_of_all(value.values(), _size_of_all(value, size))
    elif isinstance(value, LISTS):
        size += 2 + len(value)
        if size <= LARGE_BYTES:
            size = _size_of_all(value, size)
    elif isinstance(value, TEXTS):
        size += len(value)
    elif type(value) not in NUMBERS:
        # An object of a tool, such as a model: by its attributes.
        size = _size(getattr(value, "__dict__", None), size + 2)
        size = _size_of_all([getattr(value, name, None) for name in getattr(type(value), "__slots__", ())], size)
    return size


def _size_of_all(values: Iterable[Any], size: int) -> int:
    for value in values:
        kind = type(value)
        if kind is str:
            size += len(value)
        elif kind in NUMBERS:
            size += NUMBER_BYTES
        else:
            size = _size(value, size)
        if size > LARGE_BYTES:
            break
    return size
