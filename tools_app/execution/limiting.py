"""Limits as a client meets them: what is used up becomes a refusal that says when to try again.

A call that finds no place among its tenant's or its tool's calls waits in line for a moment: first come, first served.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final
from uuid import UUID

from django.db.models import Q

from tools_app.audit import denials
from tools_app.audit.denials import Denial
from tools_app.audit.identity import process_id
from tools_app.auth import limits
from tools_app.auth.allowance import DAY, MINUTE, SECOND, Places, Rate, call_places
from tools_app.auth.limits import OverLimit
from tools_app.auth.principal import Principal
from tools_app.execution import turnstile
from tools_app.execution.invocation import Invocation
from tools_app.models import RunningCall
from tools_app.models.config import config
from tools_app.models.ids import new_id
from tools_app.protocol.errors import OVER_LIMIT, RpcError

# How often whoever is first in line looks for a place that another process gave back.
POLL_SECONDS: Final = 0.05
MOST_IN_LINE: Final = 100
WINDOWS: Final = {SECOND: "second", MINUTE: "minute", DAY: "day"}


async def take_requests(principal: Principal, count: int = 1) -> None:
    """Count requests of any kind. Raises RpcError if there were too many."""
    over = await limits.take(principal.allowed.requests, count)
    if over is not None:
        raise too_often(over)


async def refusal_of(principal: Principal, address: str, count: int) -> RpcError | None:
    """The same for messages of a channel: the refusal, noted as a denial, if there were too many."""
    over = await limits.take(principal.allowed.requests, count)
    if over is None:
        return None
    refusal = too_often(over)
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
    """Count a call. Raises RpcError, noted as a denial, if there were too many."""
    over = await limits.take(rates)
    if over is not None:
        raise _denied(invocation, too_often(over))


@asynccontextmanager
async def place_for(invocation: Invocation, places: Sequence[Places]) -> AsyncIterator[None]:
    """A place for a call among those that run, for as long as the block lasts, or the call if that lasts longer.

    Raises RpcError, noted as a denial, if there is none for MCPHUB_TURN_SECONDS.
    """
    id = str(invocation.call_id)
    full = await _held_in_turn(places, id)
    if full is not None:
        raise _denied(invocation, _too_many(full))
    try:
        yield
    finally:
        limits.let_go(id)
        for place in places:
            if place.key in _lines:
                _lines[place.key].freed.set()


@asynccontextmanager
async def stream_for(principal: Principal) -> AsyncIterator[None]:
    """A place among the caller's open streams. Raises RpcError if there is none."""
    turnstile.step_aside()
    places = principal.allowed.streams
    if not places:
        yield
        return
    id = str(new_id())
    full = await limits.hold(places, id)
    if full is not None:
        raise _too_many(full)
    try:
        yield
    finally:
        limits.let_go(id)


def let_go_of(tenant_id: UUID | None, tool_id: UUID | None, call_id: UUID) -> None:
    """Give back the places of a call that ran from its row, whichever process took them."""
    limits.let_go_of(call_places(tenant_id, tool_id), str(call_id))


def renew() -> None:
    """Hold on to what this process holds, and to the places of the calls whose rows say that they are its own."""
    limits.renew()
    limited = Q(tenant__calls_in_flight__isnull=False) | Q(tool__calls_in_flight__isnull=False)
    from_rows = Q(background=True) | Q(task_seconds__isnull=False)
    rows = RunningCall.objects.filter(limited, from_rows, owner=process_id()).order_by()
    held: defaultdict[str, list[str]] = defaultdict(list)
    for call_id, tenant_id, tool_id in rows.values_list("pk", "tenant_id", "tool_id"):
        for key in call_places(tenant_id, tool_id):
            held[key].append(str(call_id))
    for key, ids in held.items():
        limits.renew_for(key, ids)


def too_often(over: OverLimit) -> RpcError:
    """The refusal of what came too often."""
    rate = over.rate
    message = (
        f"Over the limit of {_counted(rate.most, rate.what)} per {WINDOWS[rate.seconds]} for this {rate.scope}."
        f" Try again in {_counted(over.retry_after, 'seconds')}."
    )
    data = {
        "scope": rate.scope,
        "what": rate.what,
        "limit": rate.most,
        "windowSeconds": rate.seconds,
        "retryAfterSeconds": over.retry_after,
    }
    return RpcError(OVER_LIMIT, message, data, retry_after=over.retry_after)


def _too_many(full: Places) -> RpcError:
    message = f"Over the limit of {_counted(full.most, full.what)} at once for this {full.scope}."
    data = {"scope": full.scope, "what": full.what, "limit": full.most, "retryAfterSeconds": 1}
    return RpcError(OVER_LIMIT, message, data, retry_after=1)


def _counted(number: int, things: str) -> str:
    return f"{number} {things.removesuffix('s') if number == 1 else things}"


def _denied(invocation: Invocation, refusal: RpcError) -> RpcError:
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


# --- Waiting in line ------------------------------------------------------------------------------------------


class _Line:
    """Those on this event loop who wait for a place under one name."""

    def __init__(self) -> None:
        self.first = asyncio.Lock()
        self.freed = asyncio.Event()
        self.length = 0


_lines: dict[str, _Line] = {}


async def _held_in_turn(places: Sequence[Places], id: str) -> Places | None:
    """Hold one of each of `places`: None, or the one that stayed full. Nobody passes those who wait already."""
    full = next((place for place in places if place.key in _lines), None)
    if full is None:
        full = await limits.hold(places, id)
    if full is None:
        return None
    turnstile.step_aside()
    with suppress(TimeoutError):
        async with asyncio.timeout(config.MCPHUB_TURN_SECONDS):
            while full is not None and _length(full) < MOST_IN_LINE:
                full = await _held_as_first(full, places, id)
    return full


def _length(full: Places) -> int:
    line = _lines.get(full.key)
    return line.length if line else 0


async def _held_as_first(full: Places, places: Sequence[Places], id: str) -> Places | None:
    """Wait for a place in the line of the one that is full: None once it is held, or another one that is full now."""
    line = _lines.setdefault(full.key, _Line())
    line.length += 1
    try:
        async with line.first:
            while True:
                line.freed.clear()
                still = await limits.hold(places, id)
                if still is None or still.key != full.key:
                    return still
                with suppress(TimeoutError):
                    await asyncio.wait_for(line.freed.wait(), POLL_SECONDS)
    finally:
        line.length -= 1
        if not line.length:
            del _lines[full.key]
