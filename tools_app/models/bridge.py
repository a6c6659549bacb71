"""All crossing from asyncio to the ORM, in one place.

Queries run in a small pool of threads, each with a connection of its own: nothing waits for Django's one
thread-sensitive thread, and no connection is held while a tool runs.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from django.db import OperationalError, close_old_connections, connections

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
MOST_SECONDS = 5.0

_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="store")


async def in_store(query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `query` in the pool and return what it returns, or raise what it raises.

    Raises OperationalError after MOST_SECONDS: nobody waits for a database that hangs. The query may still come to
    its end then.
    """
    bound = asyncio.timeout(MOST_SECONDS)
    try:
        async with bound:
            return await in_store_patiently(query, *args, **kwargs)
    except TimeoutError:
        if bound.expired():
            raise OperationalError("the database does not answer") from None
        raise


async def in_store_patiently(query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for what has bounds of its own."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_pool, lambda: context.run(_guarded, lambda: query(*args, **kwargs)))


def let_go(**_signal: Any) -> None:
    """Close the connections of a request that is over.

    Under ASGI each request of Django's has a thread of its own: kept for the next one, its connection would only wait
    for the garbage collector, and many such requests use up what the database allows.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def _guarded(query: Callable[[], T]) -> T:
    close_old_connections()
    try:
        return query()
    finally:
        close_old_connections()
