"""A long mixed load on two web processes and two workers, to see what grows that should not.

    pip install -e '.[dev]' && python -m tests.faults.soak --minutes 30

Needs the programs of PostgreSQL and Redis (Debian: `apt-get install postgresql redis-server`); both are started anew,
on free ports, and ended with everything else. A line is printed every ten seconds; the verdict at the end is also the
exit code. Clients come and go, sessions are opened and deleted, streams are dropped in the middle.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tests.faults.hub import Hub, own_hub
from tests.faults.ledger import check_records
from tests.faults.load import Load, loading
from tests.faults.processes import family
from tests.faults.vanish import crowd

SAMPLE_SECONDS = 10.0
# Modules and caches that are loaded first are no leak.
WARM_UP_MINUTES = 6.0
GENERATION_SECONDS = 60.0
# What a process may still grow by, a minute, after the warm-up: an allocator is never quite still. A worker is three.
MAX_KB_A_MINUTE = 60.0
PROCESSES = {"web1_mb": 1, "web2_mb": 1, "worker1_mb": 3, "worker2_mb": 3}
# Idle sessions expire within this, and are looked for every half minute.
IDLE_SECONDS = 20.0
REST_SECONDS = IDLE_SECONDS + 45.0
SETTLED_SECONDS = 20.0
CROWD = 64
MB, KB = 2**20, 2**10
# Of sessions those that are open; the last one only grows.
TABLES = (
    "session WHERE ended_at IS NULL",
    "runningcall",
    "callanswer WHERE expires_at < now() - interval '2 minutes'",
    "callinput",
    "call",
)


@dataclass(frozen=True)
class Sample:
    """One sample: memory in MB by process, open files, resources of the web processes, and rows of tables."""

    minute: float
    web1_mb: float
    web2_mb: float
    worker1_mb: float
    worker2_mb: float
    fds: int
    threads: int
    tasks: int
    streams: int
    sessions: int
    running: int
    answers: int
    inputs: int
    calls: int
    per_second: float


def main() -> int:
    """Run the load, take samples and print the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=12, help="clients at a time (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between a client's calls")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mcphub-soak-") as home,
        own_hub(Path(home), MCPHUB_SESSION_IDLE_TIMEOUT=str(IDLE_SECONDS)) as hub,
    ):
        samples, outcomes = soak(hub, options.minutes, options.clients, options.pause)
        time.sleep(REST_SECONDS)
        left = take_sample(hub, 0.0, 0, 1.0)
    return verdict(samples, outcomes, left)


def soak(hub: Hub, minutes: float, clients: int, pause: float) -> tuple[list[Sample], Counter[str]]:
    """Run one generation of clients after another, and compare the responses of each with the records."""
    samples: list[Sample] = []
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    print_line(" ".join(f"{field.name:>10}" for field in fields(Sample)))
    while (left := minutes * 60 - (time.monotonic() - began)) > 0:
        with loading(hub.urls, hub.stack.key, clients=clients, pause=pause) as load:
            crowd(hub.urls, hub.stack.key, CROWD)
            _sample_until(time.monotonic() + min(GENERATION_SECONDS, left), samples, hub, load, began)
        check_records(hub.stack, load, settled_within=SETTLED_SECONDS)
        outcomes += load.outcome_counts()
    return samples, outcomes


def _sample_until(end: float, samples: list[Sample], hub: Hub, load: Load, began: float) -> None:
    while time.monotonic() < end:
        before, then = load.count("result"), time.monotonic()
        time.sleep(min(SAMPLE_SECONDS, max(0.1, end - then)))
        now = time.monotonic()
        samples.append(take_sample(hub, (now - began) / 60, load.count("result") - before, now - then))
        print_line(" ".join(f"{value:>10.1f}" for value in astuple(samples[-1])))


def take_sample(hub: Hub, minute: float, results: int, seconds: float) -> Sample:
    """Take one sample."""
    processes = [*hub.webs, *hub.workers]
    insides = [json.loads(hub.call(web, "insides")["content"][0]["text"]) for web in range(len(hub.webs))]
    counts = [hub.stack.rows(f"SELECT count(*) FROM tools_app_{table}")[0][0] for table in TABLES]
    return Sample(
        minute,
        *(sum(process.rss for process in family(running)) / MB for running in processes),
        fds=sum(process.fds for running in processes for process in family(running)),
        threads=sum(process.threads for running in processes for process in family(running)),
        tasks=sum(counts_of_process["tasks"] for counts_of_process in insides),
        streams=sum(counts_of_process["streams"] for counts_of_process in insides),
        sessions=counts[0],
        running=counts[1],
        answers=counts[2],
        inputs=counts[3],
        calls=counts[4],
        per_second=results / seconds,
    )


def verdict(samples: list[Sample], outcomes: Counter[str], left: Sample) -> int:
    """Print the verdict, and return 0 if nothing grew and nothing was left."""
    warm = [sample for sample in samples if sample.minute > WARM_UP_MINUTES]
    grew = False
    print_line("")
    for name, processes in PROCESSES.items() if len(warm) > 1 else ():
        sizes = [getattr(sample, name) for sample in warm]
        slope = statistics.linear_regression([sample.minute for sample in warm], sizes).slope * KB / processes
        grew |= slope > MAX_KB_A_MINUTE
        print_line(
            f"{name:>10}: {slope:+6.1f} KB a minute and process, {sizes[0]:.1f} MB at first, {sizes[-1]:.1f} at last"
        )
    still = {name: getattr(left, name) for name in ("streams", "sessions", "running", "inputs", "tasks", "fds")}
    leaks = left.streams or left.sessions or left.running or left.inputs
    print_line(f"   answers: {dict(outcomes)}; every one was held against its record")
    print_line(f"   at rest: {still}")
    print_line(f"    judged: {len(warm)} samples, after {WARM_UP_MINUTES:g} minutes of warming up")
    print_line(f"   verdict: {'it grows' if grew else 'it leaks' if leaks else 'flat'}")
    return int(bool(grew or leaks))


def print_line(line: str) -> None:
    """Print a line, unbuffered."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
