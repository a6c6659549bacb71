"""How long the hub takes to start, and how much memory it then holds."""

import subprocess
import sys
import time
from collections.abc import Mapping
from statistics import median

from benchmarks import contestants, processes
from benchmarks.hub import PROJECT
from benchmarks.plan import Plan
from benchmarks.table import Table

FIRST_START = "`up`, the first time: migrations, demo tenant"
DAPHNE, UVICORN = "`up --server daphne`, from then on", "`up --server uvicorn`, from then on"
IMPORTED = "Python with `mcphub.asgi` imported, and gone again"
IMPORT = [sys.executable, "-c", "import mcphub.asgi"]


def start(plan: Plan) -> Table:
    """From the command to the first 200 of `/readyz`."""
    daphne, uvicorn = (
        [word for word in factory(plan.hub).command if word != "--no-demo"]
        for factory in (contestants.hub_on_daphne, contestants.hub_on_uvicorn)
    )
    steps = {FIRST_START: daphne, DAPHNE: daphne, UVICORN: uvicorn}
    seconds: dict[str, list[float]] = {name: [] for name in (*steps, IMPORTED)}
    memory: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(plan.rounds):
        environment = {**plan.hub.environment, "MCPHUB_DATA_DIR": str(plan.new_folder())}
        for name, command in steps.items():
            durations, memory_bytes = _start(plan, command, environment)
            seconds[name].append(durations)
            memory[name].append(memory_bytes / 2**20)
        seconds[IMPORTED].append(_import_seconds(plan, environment))
    rows = [[name, f"{median(durations):.2f}", _shown(memory.get(name, []))] for name, durations in seconds.items()]
    return Table(("what", "seconds", "memory when ready, MiB"), rows)


def _start(plan: Plan, command: list[str], environment: Mapping[str, str]) -> tuple[float, int]:
    """Seconds until it was ready, and the bytes that it held then."""
    started_at = time.monotonic()
    with processes.started(command, environment, plan.cores.server, plan.new_folder()) as running:
        running.wait_for("/readyz")
        return time.monotonic() - started_at, running.memory()


def _import_seconds(plan: Plan, environment: Mapping[str, str]) -> float:
    started_at = time.monotonic()
    subprocess.run(["taskset", "-c", plan.cores.server, *IMPORT], cwd=PROJECT, env=dict(environment), check=True)
    return time.monotonic() - started_at


def _shown(memory: list[float]) -> str:
    return f"{median(memory):.0f}" if memory else ""
