"""What many recorded calls do to new ones, and to the audit list."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median

from benchmarks import ask, stacks, workloads, wrk
from benchmarks.pages import Person
from benchmarks.plan import Plan
from benchmarks.stacks import Stack
from benchmarks.table import Table

SHORT_CALLS = 2_000
MILLION = 1_000_000
# The seeded calls are shared among as many tenants.
TENANTS = 10
CALLS = "/admin/tools_app/call/"
READS = 7
# How many days back the page is that is read for a late one.
OLD_PAGE_DAYS = 30
# Who reads which page of the audit list: a superuser everything, an auditor what is of one tenant.
PAGES = {
    "superuser, first page": ("root", ""),
    "superuser, a late page": ("root", "?until={late}"),
    "superuser, of one tenant": ("root", "?tenant={tenant}"),
    "superuser, that went wrong": ("root", "?outcome=tool_error"),
    "auditor, first page": ("auditor", ""),
    "auditor, a late page": ("auditor", "?until={late}"),
    "auditor, that went wrong": ("auditor", "?outcome=tool_error"),
    "auditor, of one tool": ("auditor", "?tool=echo"),
    "auditor, last 24 hours": ("auditor", "?period=24h"),
    "auditor, search for what is not there": ("auditor", "?text=nowhere"),
}
Starting = Callable[[Plan], AbstractContextManager[Stack]]


def history(plan: Plan) -> Table:
    """`tools/call` and the audit list with no recorded calls and with a million."""
    postgresql = partial(stacks.scaled, worker=False)
    if plan.short:
        return _table(plan, [("PostgreSQL", postgresql, SHORT_CALLS)])
    return _table(
        plan, [("PostgreSQL", postgresql, 0), ("PostgreSQL", postgresql, MILLION), ("SQLite", stacks.alone, MILLION)]
    )


def long_history(plan: Plan) -> Table:
    """The same with ten million recorded calls, on PostgreSQL."""
    count = SHORT_CALLS if plan.short else 10 * MILLION
    return _table(plan, [("PostgreSQL", partial(stacks.scaled, worker=False), count)])


def _table(plan: Plan, cases: list[tuple[str, Starting, int]]) -> Table:
    columns = [_figures(plan, starting, calls) for _, starting, calls in cases]
    names = [f"{name}, {calls:,} calls" for name, _, calls in cases]
    rows = [[figure, *(column[figure] for column in columns)] for figure in columns[0]]
    faults = [f"{name}: errors" for name, column in zip(names, columns, strict=True) if column[ERRORS] != "0"]
    return Table(["", *names], rows, [], faults)


ERRORS = "`tools/call`, errors"


def _figures(plan: Plan, starting: Starting, calls: int) -> dict[str, str]:
    """What is measured of one hub, by the names of the rows."""
    with starting(plan) as stack:
        request = workloads.ECHO.request(stack.hub.key)
        ask.check(stack.web.port, workloads.ECHO, request)
        if calls:
            stack.hub.shell(f"from benchmarks import seed; seed.calls({calls}, {TENANTS})")
        loads = [
            wrk.run(stack.web.port, [request], 32, seconds=plan.seconds, cores=plan.cores.load, folder=plan.folder)
            for _ in range(plan.rounds)
        ]
        figures = {
            "`tools/call`, 32 clients, requests/s": f"{median(load.rate for load in loads):,.0f}",
            "`tools/call`, p50 ms": f"{median(load.p50 for load in loads):.1f}",
            "`tools/call`, p99 ms": f"{median(load.p99 for load in loads):.1f}",
            ERRORS: str(sum(load.failed for load in loads)),
        }
        return figures | _pages(stack, READS if plan.rounds > 1 else 1)


def _pages(stack: Stack, reads: int) -> dict[str, str]:
    """How long each page of the audit list takes, from the request to its last byte."""
    figures = {}
    late = f"{datetime.now(UTC) - timedelta(days=OLD_PAGE_DAYS):%Y-%m-%d}"
    people = {name: Person(stack.pages.port, name) for name in ("root", "auditor")}
    for name, (username, query) in PAGES.items():
        path = CALLS + query.format(late=late, tenant=stack.hub.tenant_id)
        times = [people[username].read(path)[0] for _ in range(reads)]
        figures[f"audit list, {name}, ms"] = f"{median(times) * 1000:.0f}"
    return figures
