"""Somebody floods the hub with 200 connections: what a neighbour with 4 clients notices of it."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from benchmarks import ask, contestants, floods, processes, workloads, wrk
from benchmarks.costs import plan_servers
from benchmarks.floods import Flood
from benchmarks.plan import Plan
from benchmarks.processes import Running
from benchmarks.table import Table
from benchmarks.workloads import Request
from benchmarks.wrk import Load

FLOOD_CLIENTS, CLIENTS = 200, 4
# The flood begins before the neighbour is measured, and ends after it.
MARGIN_SECONDS = 1
WARM_UP_SECONDS = 1
# A neighbour's p99 under a flood: within so many times that without, or so many milliseconds.
MAX_RATIO, MAX_P99_MS = 4.0, 50.0
CREATE_NEIGHBOUR = """
from tools_app.tenants import keys
from tools_app.catalog import authoring
from tools_app.models import Tenant
tenant = Tenant.objects.create(slug="neighbour", name="neighbour")
authoring.add_code_tools(tenant, ["echo"])
print(keys.issue(tenant, "neighbour")[1])
"""
COLUMNS = (
    "server",
    "flood of",
    "flood's requests/s",
    "neighbour's requests/s",
    "under the flood",
    "p50 ms",
    "under the flood",
    "p99 ms",
    "under the flood",
    "p99, times",
)


@dataclass
class Rounds:
    """What was seen of one kind of flood: the neighbour alone and under it, turn by turn, and the flood itself."""

    alone: list[Load] = field(default_factory=list)
    under: list[Load] = field(default_factory=list)
    flood: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Of the neighbour's p99 under the flood to that alone; infinite where it got no answer at all."""
        pairs = zip(self.alone, self.under, strict=True)
        return median(two.p99 / one.p99 if one.answers and two.answers else math.inf for one, two in pairs)

    @property
    def p99(self) -> float:
        """The median p99 of the neighbour under the flood, in ms; infinite where it got no answer at all."""
        return median(load.p99 if load.answers else math.inf for load in self.under)


def fairness(plan: Plan) -> Table:
    """A neighbour's calls alone and under a flood of 200 connections, kind by kind, on both servers and SQLite."""
    rows, faults = [], []
    for server in plan_servers(plan):
        for kind, rounds in _seen(plan, server).items():
            rows.append(_row(server, kind, rounds))
            # The single second of a short run says nothing of a 99th percentile.
            if rounds.ratio > MAX_RATIO and rounds.p99 > MAX_P99_MS and not plan.short:
                faults.append(f"{server}, {kind}: {rounds.ratio:.1f} times")
            if failed := sum(load.failed for load in (*rounds.alone, *rounds.under)):
                faults.append(f"{server}, {kind}: {failed} of the neighbour's calls failed")
    few = f"{floods.STREAM_CLIENTS} for streams and for 1 MB"
    said = f"The flood has {FLOOD_CLIENTS} connections ({few}), its neighbour {CLIENTS}."
    return Table(COLUMNS, rows, [said], faults)


def _seen(plan: Plan, server: str) -> dict[str, Rounds]:
    hub = plan.new_hub()
    contestant = (contestants.hub_on_uvicorn if server == "uvicorn" else contestants.hub_on_daphne)(hub)
    neighbour = workloads.ECHO.request(hub.shell(CREATE_NEIGHBOUR))
    seen = {kind: Rounds() for kind in floods.KINDS}
    with processes.started(contestant.command, contestant.environment, plan.cores.server, plan.new_folder()) as running:
        running.wait_until_open()
        ask.check(running.port, workloads.ECHO, neighbour)
        for _ in range(plan.rounds):
            for kind, rounds in seen.items():
                _round(plan, running, neighbour, Flood(kind, plan, running, contestant), rounds)
    return seen


def _round(plan: Plan, running: Running, neighbour: Request, flood: Flood, rounds: Rounds) -> None:
    load = partial(_load, plan, running, neighbour, CLIENTS)
    # A key that was not used for a second is read anew: wrk would count that one wait many times over.
    load(WARM_UP_SECONDS)
    rounds.alone.append(load(plan.seconds))
    with ThreadPoolExecutor(1) as thread:
        rising = thread.submit(flood.rate, FLOOD_CLIENTS, plan.seconds + WARM_UP_SECONDS + 2 * MARGIN_SECONDS)
        time.sleep(MARGIN_SECONDS)
        load(WARM_UP_SECONDS)
        rounds.under.append(load(plan.seconds))
        rounds.flood.append(rising.result())


def _load(plan: Plan, running: Running, request: Request, clients: int, seconds: int) -> Load:
    return wrk.run(running.port, [request], clients, seconds=seconds, cores=plan.cores.load, folder=plan.new_folder())


def _row(server: str, name: str, rounds: Rounds) -> list[str]:
    def middle(loads: list[Load], of: str) -> float:
        found: float = median(getattr(load, of) for load in loads)
        return found

    return [
        server,
        f"`{name}`",
        f"{median(rounds.flood):,.0f}",
        f"{middle(rounds.alone, 'rate'):,.0f}",
        f"{middle(rounds.under, 'rate'):,.0f}",
        f"{middle(rounds.alone, 'p50'):.1f}",
        f"{middle(rounds.under, 'p50'):.1f}",
        f"{middle(rounds.alone, 'p99'):.1f}",
        f"{middle(rounds.under, 'p99'):.1f}",
        f"{rounds.ratio:.2f}",
    ]
