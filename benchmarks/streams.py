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

COUNT = 1000
# Opened before the memory is looked at first, so that what any stream needs once is not counted.
WARM = 100
AT_ONCE = 50
VERBS = {"POST": f"`subscriptions/listen` ({MODERN})", "GET": f"GET ({HANDSHAKE})"}
HEARD_SECONDS = 30.0
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


class Audience:
    """Open streams of one kind, and when each heard of the latest change."""

    def __init__(self) -> None:
        self.heard: list[float] = []
        self._readers: list[asyncio.Task[None]] = []
        self._all_heard = asyncio.Event()

    async def join(self, port: int, verb: str, requests: Sequence[Request]) -> None:
        """Open a stream for each request."""
        for start in range(0, len(requests), AT_ONCE):
            some = requests[start : start + AT_ONCE]
            self._readers += await asyncio.gather(*(self._opened(port, verb, request) for request in some))

    async def hear(self, change: Callable[[], float]) -> list[float]:
        """Seconds from a change to each stream that heard of it; `change` makes it and tells when."""
        self.heard.clear()
        self._all_heard.clear()
        began = await asyncio.to_thread(change)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_heard.wait(), HEARD_SECONDS)
        return [at - began for at in self.heard]

    async def leave(self) -> None:
        """Close all streams."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _opened(self, port: int, verb: str, request: Request) -> "asyncio.Task[None]":
        connection = await wire.Connection.open(port)
        return asyncio.create_task(self._read(connection, await connection.send(verb, request)))

    async def _read(self, connection: wire.Connection, headers: dict[str, str]) -> None:
        try:
            async for one in connection.messages(headers):
                if one.message.get("method") == CHANGED:
                    self.heard.append(one.at)
                    if len(self.heard) == len(self._readers):
                        self._all_heard.set()
        finally:
            await connection.close()


def streams(plan: Plan) -> Table:
    """A thousand idle streams: memory and processor time, and the time from an admin's save to each stream."""
    kinds = (stacks.alone, stacks.embedded, partial(stacks.scaled, worker=False))[: 1 if plan.short else None]
    rows = [_measured(plan, kind(plan), verb) for kind in kinds for verb in VERBS]
    faults = [f"{row[0]}, {row[1]}: {row[-1]} did not hear" for row in rows if row[-1] != "0"]
    return Table(COLUMNS, rows, [], faults)


def _measured(plan: Plan, starting: AbstractContextManager[Stack], verb: str) -> list[str]:
    count, warm = (20, 5) if plan.short else (COUNT, WARM)
    with starting as stack:
        requests = [_request(stack, verb) for _ in range(count + warm)]
        admin = Person(stack.pages.port, "root")
        switches = [partial(admin.switch_tool, stack.hub.tool_id, on=bool(turn % 2)) for turn in range(plan.rounds)]
        figures = asyncio.run(_watch(stack, verb, requests, warm, switches))
    return [stack.label, VERBS[verb], *figures]


def _request(stack: Stack, verb: str) -> Request:
    """What opens a stream; a GET stream needs a session of its own, in which it is the one that is told."""
    if verb == "POST":
        return LISTEN.request(stack.hub.key)
    session = ask.open_session(stack.web.port, stack.hub.key)
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {stack.hub.key}", SESSION: session}
    return Request("", headers)


async def _watch(
    stack: Stack, verb: str, requests: Sequence[Request], warm: int, switches: Sequence[Callable[[], float]]
) -> list[str]:
    """The figures of a row: costs, how fast streams open, and when the first, the middle and the last one heard."""
    # The few streams of a short run show nothing, however long they are watched.
    idle_seconds = IDLE_SECONDS * min(1.0, len(requests) / COUNT)
    audience = Audience()
    await audience.join(stack.web.port, verb, requests[:warm])
    await asyncio.sleep(SETTLE_SECONDS)
    busy = await _busy_share(stack.web, idle_seconds)
    before, began = stack.web.memory(), time.monotonic()
    await audience.join(stack.web.port, verb, requests[warm:])
    opening = time.monotonic() - began
    await asyncio.sleep(SETTLE_SECONDS)
    idle = len(requests) - warm
    memory = (stack.web.memory() - before) / idle * 1000 / 2**20
    share = (await _busy_share(stack.web, idle_seconds) - busy) / idle * 1000
    costs = [str(len(requests)), f"{memory:.0f}", f"{share:.1%}".rstrip("%"), f"{idle / opening:,.0f}"]
    rounds = [await audience.hear(switch) for switch in switches]
    await audience.leave()
    missed = sum(len(requests) - len(heard) for heard in rounds)
    if missed:
        return [*costs, "", "", "", str(missed)]
    told = (median(of(heard) for heard in rounds) for of in (min, median, max))
    times = [f"{seconds * 1000:.0f}" for seconds in told]
    return [*costs, *times, str(missed)]


async def _busy_share(server: Running, seconds: float) -> float:
    """The share of a core that a server takes while nothing is asked of it."""
    before, began = server.processor_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    return (server.processor_seconds() - before) / (time.monotonic() - began)
