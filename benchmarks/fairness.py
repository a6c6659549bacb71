"""One tenant floods the hub with 200 connections: what a neighbour with 4 clients notices of it."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from benchmarks import ask, contestants, processes, workloads, wrk
from benchmarks.plan import Plan
from benchmarks.processes import Running
from benchmarks.table import Table
from benchmarks.workloads import Request
from benchmarks.wrk import Load

FLOOD, CLIENTS = 200, 4
# The flood begins before the neighbour is measured, and ends after it.
MARGIN_SECONDS = 1
WARM_UP_SECONDS = 1
MOST = 2.0
NEIGHBOUR = """
from tools_app.auth import keys
from tools_app.execution import authoring
from tools_app.models import Tenant
tenant = Tenant.objects.create(slug="neighbour", name="neighbour")
authoring.add_code_tools(tenant, ["echo"])
print(keys.issue(tenant, "neighbour")[1])
"""
FLOODS = (workloads.ECHO, workloads.LIST)
COLUMNS = (
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
    flood: list[Load] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Of the neighbour's p99 under the flood to that alone."""
        return median(two.p99 / one.p99 for one, two in zip(self.alone, self.under, strict=True))


def fairness(plan: Plan) -> Table:
    """A neighbour's calls alone and under one tenant's flood of 200 connections, on uvicorn and SQLite."""
    hub = plan.new_hub()
    contestant = contestants.hub_on_uvicorn(hub)
    neighbour = workloads.ECHO.request(hub.shell(NEIGHBOUR))
    seen = {flood.name: Rounds() for flood in FLOODS}
    with processes.started(contestant.command, contestant.environment, plan.cores.server, plan.new_folder()) as running:
        running.wait_until_open()
        ask.check(running.port, workloads.ECHO, neighbour)
        for _ in range(plan.rounds):
            for flood in FLOODS:
                flooding = flood.request(contestant.key_for(flood))
                ask.check(running.port, flood, flooding)
                _round(plan, running, neighbour, flooding, seen[flood.name])
    # The single second of a short run says nothing of a 99th percentile.
    judged = {} if plan.short else seen
    faults = [f"{name}: {rounds.ratio:.1f} times" for name, rounds in judged.items() if rounds.ratio > MOST]
    said = f"The flood has {FLOOD} connections, its neighbour {CLIENTS}; both are other tenants of one process."
    return Table(COLUMNS, [_row(name, rounds) for name, rounds in seen.items()], [said], faults)


def _round(plan: Plan, running: Running, neighbour: Request, flooding: Request, rounds: Rounds) -> None:
    load = partial(_load, plan, running, neighbour, CLIENTS)
    # A key that was not used for a second is read anew: wrk would count that one wait many times over.
    load(WARM_UP_SECONDS)
    rounds.alone.append(load(plan.seconds))
    with ThreadPoolExecutor(1) as thread:
        seconds = plan.seconds + WARM_UP_SECONDS + 2 * MARGIN_SECONDS
        rising = thread.submit(_load, plan, running, flooding, FLOOD, seconds)
        time.sleep(MARGIN_SECONDS)
        load(WARM_UP_SECONDS)
        rounds.under.append(load(plan.seconds))
        rounds.flood.append(rising.result())


def _load(plan: Plan, running: Running, request: Request, clients: int, seconds: int) -> Load:
    return wrk.run(running.port, [request], clients, seconds=seconds, cores=plan.cores.load, folder=plan.new_folder())


def _row(name: str, rounds: Rounds) -> list[str]:
    def middle(loads: list[Load], of: str) -> float:
        return median(getattr(load, of) for load in loads)

    return [
        f"`{name}`",
        f"{middle(rounds.flood, 'rate'):,.0f}",
        f"{middle(rounds.alone, 'rate'):,.0f}",
        f"{middle(rounds.under, 'rate'):,.0f}",
        f"{middle(rounds.alone, 'p50'):.1f}",
        f"{middle(rounds.under, 'p50'):.1f}",
        f"{middle(rounds.alone, 'p99'):.1f}",
        f"{middle(rounds.under, 'p99'):.1f}",
        f"{rounds.ratio:.2f}",
    ]
