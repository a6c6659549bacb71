"""Database access from asyncio: the only bridge to the ORM.

Queries run in a small thread pool with one connection per thread: nothing waits for Django's single thread-sensitive
thread, and no connection is held while a tool runs.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from threading import local
from time import monotonic
from typing import Any, ParamSpec, TypeVar, cast

from django.db import OperationalError, close_old_connections, connections

from tools_app.core.process.runtime import Service

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
MAX_SECONDS = 5.0
# A connection that worked so short a time ago is used again without asking whether it still does: that is a round trip.
TRUSTED_SECONDS = 0.25

# When the connections of a thread were last used without an error.
_worked = local()

_threads = Service(lambda: ThreadPoolExecutor(THREADS, thread_name_prefix="database"))


async def run_in_db_thread(query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `query` in the pool and return its result or raise its exception.

    Raises OperationalError after MAX_SECONDS, so that no caller waits for a database that hangs. The query may still
    complete afterwards.
    """
    bound = asyncio.timeout(MAX_SECONDS)
    try:
        async with bound:
            return await run_in_db_thread_unbounded(query, *args, **kwargs)
    except TimeoutError:
        if bound.expired():
            raise OperationalError("the database does not answer") from None
        raise


def submit_to_db_thread(work: Callable[[], object]) -> None:
    """Run `work` in the pool. It uses connections within `guarded`. Raises RuntimeError if the process ends."""
    _threads().submit(work)


async def run_in_db_thread_unbounded(query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `query` without the timeout, for callers that set their own."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), lambda: context.run(guarded, lambda: query(*args, **kwargs)))


def close_request_connections(**_signal: Any) -> None:
    """Close the connections of a finished request.

    Under ASGI each Django request has its own thread: a kept connection would only wait for the garbage collector,
    and many such requests exhaust the database's connection limit.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def guarded(query: Callable[[], T]) -> T:
    """Run `query` without a stale connection, and keep no connection that it broke."""
    close_old_connections()
    if monotonic() - getattr(_worked, "at", -inf) < TRUSTED_SECONDS:
        for connection in connections.all(initialized_only=True):
            # Django's own mark that a connection needs no check before its next query.
            cast("Any", connection).health_check_done = True
    _worked.at = -inf
    try:
        result = query()
        _worked.at = monotonic()
    finally:
        close_old_connections()
    return result
