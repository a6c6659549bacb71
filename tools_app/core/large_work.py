"""Work whose time grows with a body or a result: in a thread, so that no other request of the event loop waits for it.

What is small is done at once: to hand it to a thread would take longer.
"""

from collections.abc import Callable, Hashable
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

from tools_app.core import fair_scheduler
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.process.fair_threads import FairThreads
from tools_app.core.process.runtime import Service
from tools_app.core.telemetry import log_context

T = TypeVar("T")

# For all tenants; a tenant has one at most. What waits for them is bounded by the memory of large results.
THREADS: Final = 2
MAX_WAITING: Final = 64

_threads = Service(lambda: FairThreads("large-work", THREADS), FairThreads.stop)


async def run(size: int, work: Callable[[], T]) -> T:
    """Return the result of `work` on `size` bytes. Raises what it raises.

    A thread goes on with work whose task was cancelled.
    """
    if size <= LARGE_BYTES:
        return work()
    return await _threads().run(current_owner(), partial(copy_context().run, work))


def is_full() -> bool:
    """Return whether so much work of the current tenant waits that no further result should."""
    return _threads().waiting(current_owner()) >= MAX_WAITING


def current_owner() -> Hashable:
    """Return the owner of the current work: a tenant, or another whose requests take turns; None if there is none."""
    owner = fair_scheduler.current_owner()
    return log_context.tenant() if owner is None else owner
