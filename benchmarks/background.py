"""Background calls: how soon the first progress is there, and how many calls and events pass."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

from benchmarks import stacks, wire, workloads
from benchmarks.plan import Plan
from benchmarks.stacks import Stack
from benchmarks.table import Table, milliseconds
from benchmarks.workloads import Request

ALONE = 100
CLIENTS = 16
COLUMNS = (
    "hub",
    "first progress, median ms",
    "p99 ms",
    "result, median ms",
    "p99 ms",
    f"calls/s ({CLIENTS} clients)",
    "events/s",
    "errors",
)


@dataclass
class Seen:
    """What clients saw: seconds to the first progress and to the result of each call, and how many events came.

    `seconds` is how long all of it took.
    """

    first: list[float] = field(default_factory=list)
    result: list[float] = field(default_factory=list)
    events: int = 0
    wrong: int = 0
    seconds: float = 0.0


Call = Callable[[wire.Connection, Seen], Awaitable[None]]


def background(plan: Plan) -> Table:
    """Background calls with twenty progress notifications, embedded and through Redis and a Celery worker."""
    kinds = (stacks.embedded, partial(stacks.scaled, worker=True))[: 1 if plan.short else None]
    measured = [_measured(plan, kind(plan)) for kind in kinds]
    rows, notes, faults = zip(*measured, strict=True)
    return Table(COLUMNS, rows, notes, [fault for fault in faults if fault])


def _measured(plan: Plan, starting: AbstractContextManager[Stack]) -> tuple[list[str], str, str]:
    with starting as stack:
        request = workloads.REPORT_IN_WORKER.request(stack.hub.key)
        calls = [partial(_call, request)] * CLIENTS
        work = load(stack.web.port, calls, 10 if plan.short else ALONE, plan.rounds * plan.seconds)
        alone, busy = asyncio.run(work)
        # Every answer has come by now, and its record before it.
        records = stack.hub.records()
    answers, wrong = len(alone.result) + len(busy.result), alone.wrong + busy.wrong
    said = f"{stack.label}: {answers:,} answers, {records.ok:,} records, {records.events:,} events."
    fault = f"{stack.label}: {wrong} wrong answers, records {records}" if wrong or records.ok < answers else ""
    row = [
        stack.label,
        *milliseconds(alone.first),
        *milliseconds(alone.result),
        f"{len(busy.result) / busy.seconds:,.0f}",
        f"{busy.events / busy.seconds:,.0f}",
        f"{wrong / answers:.2%}",
    ]
    return row, said, fault


async def load(port: int, calls: Sequence[Call], alone: int, seconds: float) -> tuple[Seen, Seen]:
    """The first client alone for some calls, and then all clients for some seconds. Each has a call that it repeats."""
    single, many = Seen(), Seen()
    connection = await wire.Connection.open(port)
    for _ in range(alone):
        await calls[0](connection, single)
    await connection.close()
    began = time.monotonic()
    await asyncio.gather(*(_client(port, call, many, began + seconds) for call in calls))
    many.seconds = time.monotonic() - began
    return single, many


async def _client(port: int, call: Call, seen: Seen, end: float) -> None:
    connection = await wire.Connection.open(port)
    while time.monotonic() < end:
        await call(connection, seen)
    await connection.close()


async def _call(request: Request, connection: wire.Connection, seen: Seen) -> None:
    began = time.monotonic()
    headers = await connection.send("POST", request)
    heard = [one async for one in connection.messages(headers)]
    try:
        workloads.REPORT_IN_WORKER.check([one.message for one in heard])
    except workloads.WrongAnswer:
        seen.wrong += 1
        return
    seen.events += len(heard) - 1
    seen.first.append(heard[0].at - began)
    seen.result.append(heard[-1].at - began)
