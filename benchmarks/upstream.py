"""What a call of an upstream costs beside calling it directly: through the hub, and through other proxies.

The upstream shares the core of the load generator, so that each proxy has a core of its own.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks import ask, contestants, processes, wrk
from benchmarks.contestants import Contestant
from benchmarks.contextforge import ECHO_OF_UPSTREAM, ContextForge
from benchmarks.plan import BUILD_FOLDER, Plan
from benchmarks.processes import HOST, Running
from benchmarks.table import Table
from benchmarks.workloads import CALL, ECHO, ECHO_PARAMS, MODERN, Request, Workload, check_echo
from benchmarks.wrk import Load

PREFIX = "up"
FORWARDED = Workload("echo of an upstream", MODERN, CALL, {**ECHO_PARAMS, "name": f"{PREFIX}_echo"}, check_echo)
COLUMNS = ("called", "clients", "calls/s", "times direct", "p50 ms", "added ms", "p99 ms", "errors")
ALLOW = """
from tools_app.models import Tenant
for tenant in Tenant.objects.all():
    tenant.allowed_networks = ["127.0.0.0/8"]
    tenant.save()
"""


@dataclass(frozen=True)
class Route:
    """One way to the upstream, and what it took in each round."""

    label: str
    running: Running
    request: Request
    clients: int
    loads: list[Load] = field(default_factory=list)


def upstream(plan: Plan) -> Table:
    """`tools/call` of a fast upstream: directly, through the hub, through FastMCP's proxy, and through ContextForge."""
    notes: list[str] = []
    with ExitStack() as stack:
        shared_plan = replace(plan, cores=replace(plan.cores, server=plan.cores.load))
        direct = _serve(stack, shared_plan, contestants.fast_upstream())
        url = f"http://{HOST}:{direct.port}/mcp"
        hub = plan.new_hub()
        hub.shell(ALLOW)
        hub.manage("add_upstream", "--tenant", "bench", "--name", "fast", "--prefix", PREFIX, "--url", url, "--accept")
        through = _serve(stack, plan, contestants.hub_on_uvicorn(hub))
        routes = [("directly", direct, ECHO.request("none")), ("through mcphub", through, FORWARDED.request(hub.key))]
        ask.check(through.port, FORWARDED, FORWARDED.request(hub.key))
        try:
            proxy = contestants.fastmcp_proxy(url, contestants.python_with_fastmcp(BUILD_FOLDER))
        except contestants.NotInstalled as problem:
            notes.append(f"Without fastmcp {contestants.FASTMCP}: {problem}")
        else:
            running = _serve(stack, plan, proxy)
            ask.check(running.port, ECHO, ECHO.request("none"))
            routes.append((f"through fastmcp {contestants.FASTMCP}", running, ECHO.request("none")))
        try:
            routes.append(_through_contextforge(stack, plan, url))
        except contestants.NotInstalled as problem:
            notes.append(f"Without ContextForge: {problem}.")
        # A proxy that answers 32 calls a second has answered none of 32 clients within a short run.
        measured_routes = [Route(*route, clients) for clients in ((4,) if plan.short else (1, 32)) for route in routes]
        for _ in range(plan.rounds):
            for route in measured_routes:
                route.loads.append(_load(plan, route))
    answers = sum(load.answers for route in measured_routes if route.running is through for load in route.loads)
    record_count = hub.records().ok
    notes.append(f"mcphub: {answers:,} answers, {record_count:,} records of them.")
    hub_routes = [route for route in measured_routes if route.running in (direct, through)]
    notes.extend(
        f"Not the hub's: {problem}."
        for problem in _faults(route for route in measured_routes if route not in hub_routes)
    )
    faults = [
        *_faults(hub_routes),
        *([f"{answers} answers, but {record_count} records"] if record_count < answers else []),
    ]
    return Table(COLUMNS, [_row(route, measured_routes) for route in measured_routes], notes, faults)


def _through_contextforge(stack: ExitStack, plan: Plan, url: str) -> tuple[str, Running, Request]:
    """Start ContextForge with the upstream. Raises NotInstalled."""
    gateway = ContextForge(plan.new_folder())
    running = _serve(stack, plan, gateway.contestant())
    running.wait_for("/health")
    token = gateway.register(running.port, url)
    ask.check(running.port, ECHO_OF_UPSTREAM, ECHO_OF_UPSTREAM.request(token))
    return f"through {gateway.label}", running, ECHO_OF_UPSTREAM.request(token)


def _serve(stack: ExitStack, plan: Plan, contestant: Contestant) -> Running:
    folder = plan.new_folder()
    started = processes.started(contestant.command, contestant.environment, plan.cores.server, folder)
    running = stack.enter_context(started)
    running.wait_until_open()
    return running


def _load(plan: Plan, route: Route) -> Load:
    options = {"seconds": plan.seconds, "cores": plan.cores.load, "folder": plan.folder}
    return wrk.run(route.running.port, [route.request], route.clients, **options)


def _row(route: Route, routes: list[Route]) -> list[str]:
    base = next(other_route for other_route in routes if other_route.clients == route.clients)
    load_pairs = list(zip(route.loads, base.loads, strict=True))
    answers = sum(load.answers for load in route.loads)
    added_ms = (
        "" if route is base or not answers else f"{median(load.p50 - other.p50 for load, other in load_pairs):.2f}"
    )
    return [
        route.label,
        str(route.clients),
        f"{median(load.rate for load in route.loads):,.0f}",
        f"{median(load.rate / other.rate for load, other in load_pairs):.2f}",
        f"{median(load.p50 for load in route.loads):.2f}",
        added_ms,
        f"{median(load.p99 for load in route.loads):.2f}",
        f"{sum(load.failed for load in route.loads) / max(answers, 1):.2%}",
    ]


def _faults(routes: Iterable[Route]) -> Iterator[str]:
    for route in routes:
        failed, answers = (sum(getattr(load, name) for load in route.loads) for name in ("failed", "answers"))
        if failed or not answers:
            yield f"{route.label}, {route.clients} clients: {failed} errors, {answers} answers"
