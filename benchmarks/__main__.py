"""How fast the hub is, beside other servers and by itself.

    python -m benchmarks                      everything but long-history, in about 25 minutes
    python -m benchmarks --only calls lists   some of it
    python -m benchmarks --short              only to see that it works
    python -m benchmarks.report               write the kept results into docs/performance.md

Needs `.[dev]`, wrk, taskset, two processor cores that nothing else uses, PostgreSQL and Redis (DATABASE_URL and
REDIS_URL name other ones than this machine's). Everything runs in a temporary directory, on databases of its own.
"""

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    background,
    costs,
    fairness,
    history,
    hub,
    machine,
    plan,
    report,
    start,
    streams,
    tasks,
    throughput,
    upstream,
)
from benchmarks.plan import RESULTS, Cores, Plan
from benchmarks.table import Result, Table, save

MEASUREMENTS: dict[str, Callable[[Plan], Table]] = {
    "calls": throughput.calls,
    "postgresql": throughput.on_postgresql,
    "lists": throughput.lists,
    "progress": throughput.progress,
    "upstream": upstream.upstream,
    "background": background.background,
    "tasks": tasks.tasks,
    "streams": streams.streams,
    "start": start.start,
    "fairness": fairness.fairness,
    "costs": costs.costs,
    "history": history.history,
    "long-history": history.long_history,
}
# Not part of a run that does not name them, nor of a short one.
ON_DEMAND = {"long-history"}
EXCLUDED_FROM_SHORT = {*ON_DEMAND, "postgresql"}


def main() -> int:
    """Measure what was asked for, print each table, and keep it. 1 if anything went wrong."""
    options = _arguments()
    plan.check_tools()
    report.check(MEASUREMENTS)
    _allow_many_files()
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    cores = plan.cores(short=options.short)
    # The load that this process makes itself comes from the same core as wrk's.
    os.sched_setaffinity(0, {int(cores.load)})
    measurements = options.only or [
        name for name in MEASUREMENTS if name not in (EXCLUDED_FROM_SHORT if options.short else ON_DEMAND)
    ]
    faults = 0
    with tempfile.TemporaryDirectory(prefix="mcphub-benchmarks-") as folder:
        run = _plan(options, cores, Path(folder))
        for name in measurements:
            started_at = time.monotonic()
            table = MEASUREMENTS[name](run)
            faults += len(table.faults)
            description = (MEASUREMENTS[name].__doc__ or "").splitlines()[0]
            print(
                f"\n## {name}: {description}\n\n{table.markdown()}\n\n({time.monotonic() - started_at:.0f} s)",
                flush=True,
            )
            if not options.short:
                save(_result(name, run, table), RESULTS)
    return 1 if faults else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument(
        "--seconds", type=int, default=4, help="of load on each server in a round (default: %(default)s)"
    )
    parser.add_argument("--short", action="store_true", help="one small round, in a minute; nothing is kept")
    return parser.parse_args()


def _plan(options: argparse.Namespace, cores: Cores, folder: Path) -> Plan:
    return Plan(
        rounds=1 if options.short else options.rounds,
        seconds=1 if options.short else options.seconds,
        short=options.short,
        folder=folder,
        hub=hub.prepare(folder / "hub"),
        cores=cores,
        database_url=os.environ.get("DATABASE_URL", plan.DATABASE_URL),
        redis_url=os.environ.get("REDIS_URL", plan.REDIS_URL),
    )


def _result(name: str, run: Plan, table: Table) -> Result:
    command = f"python -m benchmarks --only {name} --rounds {run.rounds} --seconds {run.seconds}"
    return Result(name, f"{datetime.now(UTC):%Y-%m-%d}", command, machine.facts(run), table)


def _allow_many_files() -> None:
    """A thousand streams are as many files, here and in the servers, which inherit this."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


if __name__ == "__main__":
    sys.exit(main())
