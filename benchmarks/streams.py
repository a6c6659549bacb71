"""Many open streams that wait: what they cost, and how soon all of them hear of an admin's change."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from statistics import median

from benchmarks import ask, stacks, wire
from benchmarks.pages import Person
from benchmarks.plan import Plan
from benchmarks.processes import Running
from benchmarks.stacks import Stack
from benchmarks.table import Table
from benchmarks.workloads import HANDSHAKE, MODERN, SESSION, Request, Workload

STREAMS = 1000
# Opened before the memory is looked at first, so that what any stream needs once is not counted.
WARM_UP_STREAMS = 100
OPEN_BATCH = 50
VERBS = {"POST": f"`subscriptions/listen` ({MODERN})", "GET": f"GET ({HANDSHAKE})"}
NOTIFICATION_TIMEOUT_SECONDS = 30.0
SETTLE_SECONDS = 2.0
# How long the processor time of idle streams is measured: a few intervals of keep-alives and polls.
IDLE_SECONDS = 15.0
CHANGED = "notifications/tools/list_changed"
LISTEN = Workload(
    "listen", MODERN, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, lambda _: None
)
COLUMNS = (
    "hub",
    "stream",
    "streams",
    "MiB per 1,000",
    "idle CPU per 1,000, % of a core",
    "opened/s",
    "first heard ms",
    "median ms",
    "last ms",
    "not heard",
)


class OpenStreams:
    """Open streams of received kind, and when each heard of the latest change."""

    def __init__(self) -> None:
        self.notified_at: list[float] = []
        self._readers: list[asyncio.Task[None]] = []
        self._all_notified = asyncio.Event()

    async def open(self, port: int, verb: str, requests: Sequence[Request]) -> None:
        """Open a stream for each request."""
        for start in range(0, len(requests), OPEN_BATCH):
            batch = requests[start : start + OPEN_BATCH]
            self._readers += await asyncio.gather(*(self._open_stream(port, verb, request) for request in batch))

    async def notification_times(self, change: Callable[[], float]) -> list[float]:
        """Seconds from a change to each stream that was notified; `change` makes it and returns its time."""
        self.notified_at.clear()
        self._all_notified.clear()
        changed_at = await asyncio.to_thread(change)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_notified.wait(), NOTIFICATION_TIMEOUT_SECONDS)
        return [time - changed_at for time in self.notified_at]

    async def close(self) -> None:
        """Close all streams."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _open_stream(self, port: int, verb: str, request: Request) -> "asyncio.Task[None]":
        connection = await wire.Connection.open(port)
        return asyncio.create_task(self._read(connection, await connection.send(verb, request)))

    async def _read(self, connection: wire.Connection, headers: dict[str, str]) -> None:
        try:
            async for received in connection.messages(headers):
                if received.message.get("method") == CHANGED:
                    self.notified_at.append(received.at)
                    if len(self.notified_at) == len(self._readers):
                        self._all_notified.set()
        finally:
            await connection.close()


def streams(plan: Plan) -> Table:
    """A thousand idle streams: memory and processor time, and the time from an admin's save to each stream."""
    kinds = (stacks.alone, stacks.embedded, partial(stacks.scaled, worker=False))[: 1 if plan.short else None]
    rows = [_row(plan, kind(plan), verb) for kind in kinds for verb in VERBS]
    faults = [f"{row[0]}, {row[1]}: {row[-1]} did not hear" for row in rows if row[-1] != "0"]
    return Table(COLUMNS, rows, [], faults)


def _row(plan: Plan, starting: AbstractContextManager[Stack], verb: str) -> list[str]:
    count, warm = (20, 5) if plan.short else (STREAMS, WARM_UP_STREAMS)
    with starting as stack:
        requests = [_request(stack, verb) for _ in range(count + warm)]
        admin = Person(stack.pages.port, "root")
        switches = [partial(admin.switch_tool, stack.hub.tool_id, on=bool(turn % 2)) for turn in range(plan.rounds)]
        figures = asyncio.run(_measure(stack, verb, requests, warm, switches))
    return [stack.label, VERBS[verb], *figures]


def _request(stack: Stack, verb: str) -> Request:
    """What opens a stream; a GET stream needs a session of its own, in which it is the received that is told."""
    if verb == "POST":
        return LISTEN.request(stack.hub.key)
    session = ask.open_session(stack.web.port, stack.hub.key)
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {stack.hub.key}", SESSION: session}
    return Request("", headers)


async def _measure(
    stack: Stack, verb: str, requests: Sequence[Request], warm: int, switches: Sequence[Callable[[], float]]
) -> list[str]:
    """The figures of a row: costs, how fast streams open, and the times to the first, the median and the last one."""
    # The few streams of a short run show nothing, however long they are watched.
    idle_seconds = IDLE_SECONDS * min(1.0, len(requests) / STREAMS)
    listeners = OpenStreams()
    await listeners.open(stack.web.port, verb, requests[:warm])
    await asyncio.sleep(SETTLE_SECONDS)
    cpu_before = await _cpu_share(stack.web, idle_seconds)
    before, started_at = stack.web.memory(), time.monotonic()
    await listeners.open(stack.web.port, verb, requests[warm:])
    opening_seconds = time.monotonic() - started_at
    await asyncio.sleep(SETTLE_SECONDS)
    idle_count = len(requests) - warm
    memory = (stack.web.memory() - before) / idle_count * 1000 / 2**20
    share = (await _cpu_share(stack.web, idle_seconds) - cpu_before) / idle_count * 1000
    costs = [str(len(requests)), f"{memory:.0f}", f"{share:.1%}".rstrip("%"), f"{idle_count / opening_seconds:,.0f}"]
    rounds = [await listeners.notification_times(switch) for switch in switches]
    await listeners.close()
    missed_count = sum(len(requests) - len(notified_at) for notified_at in rounds)
    if missed_count:
        return [*costs, "", "", "", str(missed_count)]
    summary = (median(of(notified_at) for notified_at in rounds) for of in (min, median, max))
    times = [f"{seconds * 1000:.0f}" for seconds in summary]
    return [*costs, *times, str(missed_count)]


async def _cpu_share(server: Running, seconds: float) -> float:
    """The share of a core that a server takes while nothing is asked of it."""
    before, started_at = server.processor_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    return (server.processor_seconds() - before) / (time.monotonic() - started_at)
