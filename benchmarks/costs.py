"""What each kind of request costs a server: processor time of its process for each answer."""

from statistics import median

from benchmarks import contestants, floods, processes
from benchmarks.floods import Flood
from benchmarks.plan import Plan
from benchmarks.table import Table

CLIENTS = 16
COLUMNS = ("request", "uvicorn, us", "Daphne, us")


def costs(plan: Plan) -> Table:
    """Processor time of the hub's process for each request, in microseconds, by kind and server."""
    costs_by_kind = {kind: [_cost(plan, server, kind) for server in plan_servers(plan)] for kind in floods.KINDS}
    rows = [[f"`{kind}`", *(f"{cost:,.0f}" for cost in server_costs)] for kind, server_costs in costs_by_kind.items()]
    said = f"{CLIENTS} clients. All threads count, the recorder's too; what the kernel does for the process as well."
    return Table(COLUMNS[: 1 + len(plan_servers(plan))], rows, [said], [])


def plan_servers(plan: Plan) -> tuple[str, ...]:
    """The servers that a run measures."""
    return ("uvicorn",) if plan.short else ("uvicorn", "daphne")


def _cost(plan: Plan, server: str, kind: str) -> float:
    factory = contestants.hub_on_uvicorn if server == "uvicorn" else contestants.hub_on_daphne
    contestant = factory(plan.new_hub())
    with processes.started(contestant.command, contestant.environment, plan.cores.server, plan.new_folder()) as running:
        running.wait_until_open()
        flood = Flood(kind, plan, running, contestant)
        flood.rate(CLIENTS, 1)
        return median(_measure_once(plan, running, flood) for _ in range(plan.rounds))


def _measure_once(plan: Plan, running: processes.Running, flood: Flood) -> float:
    before = running.processor_seconds()
    answers = flood.rate(CLIENTS, plan.seconds) * plan.seconds
    return (running.processor_seconds() - before) / max(answers, 1.0) * 1e6
