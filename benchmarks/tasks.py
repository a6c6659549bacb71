"""Background calls as tasks, whose clients poll for the result: the hub's, and FastMCP's with Docket over Redis."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks import contestants, processes, stacks, wire, workloads
from benchmarks.background import CLIENTS, Seen, load
from benchmarks.hub import TENANT
from benchmarks.plan import BUILD_FOLDER, Plan
from benchmarks.processes import Running
from benchmarks.table import Table, milliseconds
from benchmarks.workloads import Request

ALONE = 50
# Between two polls of a client. Servers suggest longer intervals, which would be all that is measured.
POLL_SECONDS = 0.02
MAX_SECONDS = 30.0
# A key for each client: the hub limits how often a key polls.
KEYS = f"""
import json
from tools_app.tenants import keys
from tools_app.models import Tenant
tenant = Tenant.objects.get(slug="{TENANT}")
print(json.dumps([keys.issue(tenant, f"client {{number}}")[1] for number in range({CLIENTS})]))
"""
COLUMNS = ("server", "result, median ms", "p99 ms", f"tasks/s ({CLIENTS} clients)", "errors")


def tasks(plan: Plan) -> Table:
    """Tasks of a tool with twenty progress reports: in one process each, then over Redis."""
    rows, notes, faults = [], [], []
    for kind in (stacks.embedded, *(() if plan.short else (partial(stacks.scaled, worker=True),))):
        with kind(plan) as stack:
            alone, busy = _load(stack.web.port, json.loads(stack.hub.shell(KEYS)), plan)
            rows.append(_row(stack.label, alone, busy))
            records, answers = stack.hub.records(), len(alone.result) + len(busy.result)
            notes.append(f"{stack.label}: {answers:,} results, {records.ok:,} records.")
            if records.ok < answers or alone.wrong + busy.wrong:
                faults.append(f"{stack.label}: {alone.wrong + busy.wrong} wrong answers, records {records}")
    if plan.short:
        return Table(COLUMNS, rows, notes, faults)
    try:
        with _fastmcp(plan) as web:
            label = f"fastmcp {contestants.FASTMCP_TASKS} with Docket, Redis"
            rows.append(_row(label, *_load(web.port, ["none"] * CLIENTS, plan)))
    except (contestants.NotInstalled, processes.NotStarted) as problem:
        notes.append(f"Without fastmcp {contestants.FASTMCP_TASKS}: {problem}")
    return Table(COLUMNS, rows, notes, faults)


@contextmanager
def _fastmcp(plan: Plan) -> Iterator[Running]:
    with ExitStack() as stack:
        name = stack.enter_context(stacks.name_in_redis(plan))
        server = contestants.fastmcp_tasks(plan.redis_url, name, contestants.python_with_fastmcp_tasks(BUILD_FOLDER))
        web = stack.enter_context(
            processes.started(server.command, server.environment, plan.cores.server, plan.new_folder())
        )
        web.wait_until_open()
        yield web


def _load(port: int, keys: Sequence[str], plan: Plan) -> tuple[Seen, Seen]:
    calls = [partial(_task, key) for key in keys]
    return asyncio.run(load(port, calls, 5 if plan.short else ALONE, plan.rounds * plan.seconds))


async def _task(key: str, connection: wire.Connection, seen: Seen) -> None:
    began = time.monotonic()
    task = await _answer(connection, workloads.REPORT_AS_TASK.request(key))
    poll = workloads.poll(task["taskId"]).request(key)
    # The first answer has no result, even if the task has ended by then.
    while time.monotonic() - began < MAX_SECONDS:
        await asyncio.sleep(POLL_SECONDS)
        task = await _answer(connection, poll)
        if task.get("status") != "working":
            break
    try:
        workloads.REPORT_AS_TASK.check([task])
    except workloads.WrongAnswer:
        seen.wrong += 1
        return
    seen.result.append(time.monotonic() - began)


async def _answer(connection: wire.Connection, request: Request) -> dict[str, Any]:
    headers = await connection.send("POST", request)
    heard = [one async for one in connection.messages(headers)]
    result: dict[str, Any] = heard[-1].message.get("result", {})
    return result


def _row(label: str, alone: Seen, busy: Seen) -> list[str]:
    wrong = alone.wrong + busy.wrong
    return [
        label,
        *milliseconds(alone.result or [0.0, 0.0]),
        f"{len(busy.result) / busy.seconds:,.0f}",
        f"{wrong / (wrong + len(alone.result) + len(busy.result)):.2%}",
    ]
