"""What a call of an upstream costs beside calling it directly: through the hub, and through FastMCP's proxy.

The upstream shares the core of the load generator, so that each proxy has a core of its own.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks import ask, contestants, processes, wrk
from benchmarks.contestants import Contestant
from benchmarks.plan import KEPT, Plan
from benchmarks.processes import HOST, Running
from benchmarks.table import Table
from benchmarks.workloads import CALL, ECHO, ECHO_PARAMS, MODERN, Request, Workload, echoed
from benchmarks.wrk import Load

PREFIX = "up"
FORWARDED = Workload("echo of an upstream", MODERN, CALL, {**ECHO_PARAMS, "name": f"{PREFIX}_echo"}, echoed)
COLUMNS = ("called", "clients", "calls/s", "times direct", "p50 ms", "added ms", "p99 ms", "errors")
ALLOW = """
from tools_app.models import Tenant
for tenant in Tenant.objects.all():
    tenant.allowed_networks = ["127.0.0.0/8"]
    tenant.save()
"""


@dataclass(frozen=True)
class Way:
    """One way to the upstream, and what it took in each round."""

    label: str
    running: Running
    request: Request
    clients: int
    loads: list[Load] = field(default_factory=list)


def upstream(plan: Plan) -> Table:
    """`tools/call` of a fast upstream: directly, through the hub, and through FastMCP's proxy."""
    notes: list[str] = []
    with ExitStack() as stack:
        beside = replace(plan, cores=replace(plan.cores, server=plan.cores.load))
        direct = _serve(stack, beside, contestants.fast_upstream())
        url = f"http://{HOST}:{direct.port}/mcp"
        hub = plan.new_hub()
        hub.shell(ALLOW)
        hub.manage("add_upstream", "--tenant", "bench", "--name", "fast", "--prefix", PREFIX, "--url", url, "--accept")
        through = _serve(stack, plan, contestants.hub_on_uvicorn(hub))
        ways = [("directly", direct, ECHO.request("none")), ("through mcphub", through, FORWARDED.request(hub.key))]
        ask.check(through.port, FORWARDED, FORWARDED.request(hub.key))
        try:
            proxy = contestants.fastmcp_proxy(url, contestants.python_with_fastmcp(KEPT))
        except contestants.NotInstalled as problem:
            notes.append(f"Without fastmcp {contestants.FASTMCP}: {problem}")
        else:
            running = _serve(stack, plan, proxy)
            ask.check(running.port, ECHO, ECHO.request("none"))
            ways.append((f"through fastmcp {contestants.FASTMCP}", running, ECHO.request("none")))
        found = [Way(*way, clients) for clients in ((32,) if plan.short else (1, 32)) for way in ways]
        for _ in range(plan.rounds):
            for way in found:
                way.loads.append(_load(plan, way))
    answers = sum(load.answers for way in found if way.running is through for load in way.loads)
    recorded = hub.records().ok
    notes.append(f"mcphub: {answers:,} answers, {recorded:,} records of them.")
    faults = [*_faults(found), *([f"{answers} answers, but {recorded} records"] if recorded < answers else [])]
    return Table(COLUMNS, [_row(way, found) for way in found], notes, faults)


def _serve(stack: ExitStack, plan: Plan, contestant: Contestant) -> Running:
    folder = plan.new_folder()
    started = processes.started(contestant.command, contestant.environment, plan.cores.server, folder)
    running = stack.enter_context(started)
    running.wait_until_open()
    return running


def _load(plan: Plan, way: Way) -> Load:
    options = {"seconds": plan.seconds, "cores": plan.cores.load, "folder": plan.folder}
    return wrk.run(way.running.port, [way.request], way.clients, **options)


def _row(way: Way, ways: list[Way]) -> list[str]:
    base = next(one for one in ways if one.clients == way.clients)
    together = list(zip(way.loads, base.loads, strict=True))
    asked = sum(load.answers for load in way.loads)
    added = "" if way is base else f"{median(load.p50 - other.p50 for load, other in together):.2f}"
    return [
        way.label,
        str(way.clients),
        f"{median(load.rate for load in way.loads):,.0f}",
        f"{median(load.rate / other.rate for load, other in together):.2f}",
        f"{median(load.p50 for load in way.loads):.2f}",
        added,
        f"{median(load.p99 for load in way.loads):.2f}",
        f"{sum(load.failed for load in way.loads) / max(asked, 1):.2%}",
    ]


def _faults(ways: list[Way]) -> Iterator[str]:
    for way in ways:
        failed, answers = (sum(getattr(load, name) for load in way.loads) for name in ("failed", "answers"))
        if failed or not answers:
            yield f"{way.label}, {way.clients} clients: {failed} errors, {answers} answers"
