"""Rate and concurrency limits of calls. An exceeded limit becomes an error with the time of the next attempt.

A call without a free slot for its tenant or tool waits briefly in a first-in, first-out queue.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final
from uuid import UUID

from django.db.models import Q

from tools_app.audit.recorder import denials
from tools_app.audit.recorder.denials import Denial
from tools_app.audit.recorder.entries import process_id
from tools_app.calls.invocation import Invocation
from tools_app.core import fair_scheduler
from tools_app.core.ids import new_id
from tools_app.identity.principal import Principal
from tools_app.models import RunningCall
from tools_app.protocol.errors import OVER_LIMIT, RpcError, limit_of_zero
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.limits import OverLimit
from tools_app.tenants.limits.quotas import DAY, MINUTE, SECOND, ConcurrencyLimit, Rate, call_concurrency_limits

# How often the first in the queue checks for a slot that another process released.
POLL_SECONDS: Final = 0.05
MAX_QUEUED: Final = 100
# How long a call waits for a free slot of its tenant or tool.
CONCURRENCY_WAIT_SECONDS = 1.0
WINDOW_NAMES: Final = {SECOND: "second", MINUTE: "minute", DAY: "day"}


async def take_requests(principal: Principal, count: int = 1) -> None:
    """Count requests of any kind. Raises RpcError if the limit is exceeded."""
    over = await limits.take(principal.allowed.requests, count)
    if over is not None:
        raise rate_limit_error(over)


async def request_limit_error(principal: Principal, address: str, count: int) -> RpcError | None:
    """Count messages of a persistent connection. Returns the error, recorded as a denial, if the limit is exceeded."""
    over = await limits.take(principal.allowed.requests, count)
    if over is None:
        return None
    refusal = rate_limit_error(over)
    denials.note(
        Denial(
            http_status=429,
            cause=refusal.message,
            remote_address=address,
            tenant_id=principal.tenant_id,
            key_id=principal.key_id,
            rpc_error=refusal.code,
        )
    )
    return refusal


async def take_call(invocation: Invocation, rates: Sequence[Rate]) -> None:
    """Count a call. Raises RpcError, recorded as a denial, if the limit is exceeded."""
    over = await limits.take(rates)
    if over is not None:
        raise _record_denial(invocation, rate_limit_error(over))


@asynccontextmanager
async def concurrency_slot(
    invocation: Invocation, concurrency_limits: Sequence[ConcurrencyLimit]
) -> AsyncIterator[None]:
    """Hold a concurrency slot for a call until the end of the block, or of the call if that is later.

    Raises RpcError, recorded as a denial, if none is free within CONCURRENCY_WAIT_SECONDS.
    """
    id = str(invocation.call_id)
    full_limit = await _acquire_in_order(concurrency_limits, id)
    if full_limit is not None:
        raise _record_denial(invocation, _concurrency_error(full_limit))
    try:
        yield
    finally:
        limits.release(id)
        for limit in concurrency_limits:
            if limit.key in _wait_queues:
                _wait_queues[limit.key].freed.set()


@asynccontextmanager
async def stream_slot(principal: Principal) -> AsyncIterator[None]:
    """Hold one of the caller's stream slots. Raises RpcError if none is free."""
    fair_scheduler.release_slot()
    concurrency_limits = principal.allowed.streams
    if not concurrency_limits:
        yield
        return
    id = str(new_id())
    full_limit = await limits.acquire(concurrency_limits, id)
    if full_limit is not None:
        raise _concurrency_error(full_limit)
    try:
        yield
    finally:
        limits.release(id)


def release_of(tenant_id: UUID | None, tool_id: UUID | None, call_id: UUID) -> None:
    """Release the slots of a call that ran from its row, whichever process acquired them."""
    limits.release_of(call_concurrency_limits(tenant_id, tool_id), str(call_id))


def renew() -> None:
    """Renew the slots of this process, and those of the calls whose rows it owns."""
    limits.renew()
    limited = Q(tenant__calls_in_flight__isnull=False) | Q(tool__calls_in_flight__isnull=False)
    from_rows = Q(background=True) | Q(task_seconds__isnull=False)
    rows = RunningCall.objects.filter(limited, from_rows, owner=process_id()).order_by()
    held: defaultdict[str, list[str]] = defaultdict(list)
    for call_id, tenant_id, tool_id in rows.values_list("pk", "tenant_id", "tool_id"):
        for key in call_concurrency_limits(tenant_id, tool_id):
            held[key].append(str(call_id))
    for key, ids in held.items():
        limits.renew_for(key, ids)


def rate_limit_error(over: OverLimit) -> RpcError:
    """Return the error for an exceeded rate limit, without a time to retry if the limit is 0."""
    rate = over.rate
    data = {"scope": rate.scope, "what": rate.what, "limit": rate.most, "windowSeconds": rate.seconds}
    if rate.most == 0:
        return limit_of_zero(rate.scope, f"{rate.what} per {WINDOW_NAMES[rate.seconds]}", data)
    message = (
        f"Rate limit exceeded: {_counted(rate.most, rate.what)} per {WINDOW_NAMES[rate.seconds]} for this {rate.scope}."
        f" Try again in {_counted(over.retry_after, 'seconds')}."
    )
    return RpcError(OVER_LIMIT, message, {**data, "retryAfterSeconds": over.retry_after}, retry_after=over.retry_after)


def _concurrency_error(full_limit: ConcurrencyLimit) -> RpcError:
    data = {"scope": full_limit.scope, "what": full_limit.what, "limit": full_limit.most}
    if full_limit.most == 0:
        return limit_of_zero(full_limit.scope, f"{full_limit.what} at once", data)
    message = f"Limit exceeded: {_counted(full_limit.most, full_limit.what)} at once for this {full_limit.scope}."
    return RpcError(OVER_LIMIT, message, {**data, "retryAfterSeconds": 1}, retry_after=1)


def _counted(number: int, things: str) -> str:
    return f"{number} {things.removesuffix('s') if number == 1 else things}"


def _record_denial(invocation: Invocation, refusal: RpcError) -> RpcError:
    denials.note(
        Denial(
            http_status=429,
            cause=refusal.message,
            remote_address=invocation.client.remote_address,
            tenant_id=invocation.principal.tenant_id,
            key_id=invocation.principal.key_id,
            rpc_error=refusal.code,
            method=invocation.method,
            tool_name=invocation.name,
        )
    )
    return refusal


# --- Queue for slots ------------------------------------------------------------------------------------------


class _WaitQueue:
    """The waiters of this event loop for a slot of one key."""

    def __init__(self) -> None:
        self.first = asyncio.Lock()
        self.freed = asyncio.Event()
        self.length = 0


_wait_queues: dict[str, _WaitQueue] = {}


async def _acquire_in_order(concurrency_limits: Sequence[ConcurrencyLimit], id: str) -> ConcurrencyLimit | None:
    """Acquire a slot of each limit. Returns None, or the limit that stayed full. Earlier waiters come first.

    If a limit is 0, it returns immediately.
    """
    full_limit = next((limit for limit in concurrency_limits if limit.most == 0), None)
    if full_limit is not None:
        return full_limit
    full_limit = next((limit for limit in concurrency_limits if limit.key in _wait_queues), None)
    if full_limit is None:
        full_limit = await limits.acquire(concurrency_limits, id)
    if full_limit is None:
        return None
    fair_scheduler.release_slot()
    with suppress(TimeoutError):
        async with asyncio.timeout(CONCURRENCY_WAIT_SECONDS):
            while full_limit is not None:
                queue = _wait_queues.get(full_limit.key)
                if queue is not None and queue.length >= MAX_QUEUED:
                    break
                full_limit = await _acquire_as_first(full_limit, concurrency_limits, id)
    return full_limit


async def _acquire_as_first(
    full_limit: ConcurrencyLimit, concurrency_limits: Sequence[ConcurrencyLimit], id: str
) -> ConcurrencyLimit | None:
    """Wait in the queue of the limit that is full. Returns None once acquired, or another limit that is now full."""
    queue = _wait_queues.setdefault(full_limit.key, _WaitQueue())
    queue.length += 1
    try:
        async with queue.first:
            while True:
                queue.freed.clear()
                next_full = await limits.acquire(concurrency_limits, id)
                if next_full is None or next_full.key != full_limit.key:
                    return next_full
                with suppress(TimeoutError):
                    await asyncio.wait_for(queue.freed.wait(), POLL_SECONDS)
    finally:
        queue.length -= 1
        if not queue.length:
            del _wait_queues[full_limit.key]
