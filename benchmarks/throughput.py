"""How many requests a second, and how long each takes: several servers side by side in one run.

All servers of a run are up from its beginning to its end and are loaded in turn, round by round, so that a machine
whose speed drifts does so for all of them. Ratios are made within a round; the tables show medians.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks import ask, contestants, databases, hub, processes, workloads, wrk
from benchmarks.contestants import Contestant
from benchmarks.hub import Hub
from benchmarks.plan import BUILD_FOLDER, Plan
from benchmarks.processes import Running
from benchmarks.table import Table
from benchmarks.workloads import HANDSHAKE, Request, Workload
from benchmarks.wrk import Load

SESSIONS = 32
COLUMNS = (
    "server",
    "revision",
    "clients",
    "requests/s",
    "times `mcp`",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "max ms",
    "errors",
)
HUBS = (contestants.hub_on_uvicorn, contestants.hub_on_daphne)
# What a call that is under way when wrk leaves may come to: it leaves in the middle.
CUT_OFF = {"ok", "cancelled"}


@dataclass(frozen=True)
class Entry:
    """A server that runs, what it is asked, and what it did in each round."""

    contestant: Contestant
    running: Running
    workload: Workload
    requests: Sequence[Request]
    clients: int
    loads: list[Load] = field(default_factory=list)

    def is_base_of(self, other: "Entry") -> bool:
        """Whether the other is compared to this: asked the same, by as many clients."""
        return self.contestant.is_base and (self.workload, self.clients) == (other.workload, other.clients)


def calls(plan: Plan) -> Table:
    """`tools/call` of echo in both eras; the hub keeps its records in SQLite."""
    ours = _hubs(plan)
    others, notes = _rivals(plan, "plain")
    in_sessions, _ = _rivals(plan, "sessions")
    cases = [
        *((contestant, [workloads.ECHO]) for contestant in others),
        *((contestant, [workloads.SESSION_ECHO]) for contestant in in_sessions),
        *((contestant, [workloads.ECHO, workloads.SESSION_ECHO]) for contestant in ours),
    ]
    return _run(plan, cases, (32,) if plan.short else (1, 32), notes)


def on_postgresql(plan: Plan) -> Table:
    """The same with PostgreSQL; servers, database and load share both cores."""
    with ExitStack() as stack:
        urls = [stack.enter_context(databases.fresh(plan.database_url)) for _ in _kinds(plan)]
        hubs = [hub.prepare(plan.new_folder(), DATABASE_URL=url) for url in urls]
        ours = [factory(contestant) for factory, contestant in zip(_kinds(plan), hubs, strict=True)]
        cases = [(contestant, [workloads.ECHO]) for contestant in (contestants.sdk("plain"), *ours)]
        shared = replace(plan, cores=replace(plan.cores, server=plan.cores.both, load=plan.cores.both))
        return _run(shared, cases, (32,) if plan.short else (1, 32), [])


def lists(plan: Plan) -> Table:
    """`tools/list` with a hundred tools."""
    others, notes = _rivals(plan, "many")
    cases = [(contestant, [workloads.LIST]) for contestant in (*others, *_hubs(plan))]
    return _run(plan, cases, (32,) if plan.short else (1, 32), notes)


def progress(plan: Plan) -> Table:
    """`tools/call` of a tool that reports progress twenty times, answered by an event stream."""
    others, notes = _rivals(plan, "streaming")
    cases = [(contestant, [workloads.REPORT]) for contestant in (*others, *_hubs(plan))]
    note = f"Events a second are {workloads.STEPS} times the requests a second, results apart."
    return _run(plan, cases, (16,) if plan.short else (1, 16), [note, *notes])


def _kinds(plan: Plan) -> Sequence[Callable[[Hub], Contestant]]:
    return HUBS[:1] if plan.short else HUBS


def _hubs(plan: Plan) -> list[Contestant]:
    return [factory(plan.new_hub()) for factory in _kinds(plan)]


def _rivals(plan: Plan, application: str) -> tuple[list[Contestant], list[str]]:
    """Everybody else with this application, and who had to be left out."""
    official = contestants.sdk(application)
    if plan.short:
        return [official], []
    # A bare application has no sessions that it could lose.
    floor = [] if application == "sessions" else [contestants.bare(application)]
    try:
        python = contestants.python_with_fastmcp(BUILD_FOLDER)
    except contestants.NotInstalled as problem:
        return [*floor, official], [f"Without fastmcp {contestants.FASTMCP}: {problem}"]
    return [*floor, official, contestants.fastmcp(application, python)], []


def _run(
    plan: Plan, cases: Iterable[tuple[Contestant, Sequence[Workload]]], clients: Sequence[int], notes: Sequence[str]
) -> Table:
    with ExitStack() as stack:
        entries = [
            entry
            for contestant, contestant_workloads in cases
            for entry in _entries(
                contestant, stack.enter_context(_serving(plan, contestant)), contestant_workloads, clients
            )
        ]
        # Those that are compared to each other run, and stand in the table, one after another.
        entries.sort(key=lambda entry: (entry.workload.version, entry.clients))
        for _ in range(plan.rounds):
            for entry in entries:
                entry.loads.append(_load(plan, entry))
    # The servers have ended, so everything is written.
    record_notes, missing = _records(entries)
    rows = [_row(entry, next(other for other in entries if other.is_base_of(entry))) for entry in entries]
    return Table(COLUMNS, rows, [*record_notes, *notes], [*_failures(entries), *missing])


@contextmanager
def _serving(plan: Plan, contestant: Contestant) -> Iterator[Running]:
    folder = plan.new_folder()
    with processes.started(contestant.command, contestant.environment, plan.cores.server, folder) as running:
        running.wait_until_open()
        yield running


def _entries(
    contestant: Contestant, running: Running, contestant_workloads: Sequence[Workload], clients: Sequence[int]
) -> Iterator[Entry]:
    for workload in contestant_workloads:
        requests = _requests(contestant, workload, running.port)
        ask.check(running.port, workload, requests[0])
        for count in clients:
            yield Entry(contestant, running, workload, requests, count)


def _requests(contestant: Contestant, workload: Workload, port: int) -> list[Request]:
    """What to send: the same in as many sessions as there may be clients, where the revision has sessions."""
    key = contestant.key_for(workload)
    if workload.version != HANDSHAKE:
        return [workload.request(key)]
    return [workload.request(key, ask.open_session(port, key)) for _ in range(SESSIONS)]


def _load(plan: Plan, entry: Entry) -> Load:
    return wrk.run(
        entry.running.port,
        entry.requests,
        entry.clients,
        seconds=plan.seconds,
        cores=plan.cores.load,
        folder=plan.folder,
    )


def _row(entry: Entry, base: Entry) -> list[str]:
    rate = median(load.rate for load in entry.loads)
    ratios = [load.rate / other.rate for load, other in zip(entry.loads, base.loads, strict=True)]
    times = [f"{median(getattr(load, name) for load in entry.loads):.1f}" for name in ("p50", "p90", "p99")]
    answers = sum(load.answers for load in entry.loads)
    return [
        entry.contestant.label,
        entry.workload.version,
        str(entry.clients),
        f"{rate:,.0f}",
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        *times,
        f"{max(load.slowest for load in entry.loads):.0f}",
        f"{sum(load.failed for load in entry.loads) / max(answers, 1):.2%}",
    ]


def _failures(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        failed, answers = (sum(getattr(load, name) for load in entry.loads) for name in ("failed", "answers"))
        if failed or not answers:
            who = f"{entry.contestant.label}, {entry.workload.name}, {entry.clients} clients"
            yield f"{who}: {failed} errors, {answers} answers"


def _records(entries: Sequence[Entry]) -> tuple[list[str], list[str]]:
    """What is to be said of the records of each hub, and what is wrong with them."""
    record_notes, missing = [], []
    for contestant in {id(entry.contestant): entry.contestant for entry in entries}.values():
        own = [entry for entry in entries if entry.contestant is contestant and entry.workload.is_recorded]
        if contestant.hub is None or not own:
            continue
        answers = sum(load.answers for entry in own for load in entry.loads)
        found = contestant.hub.records()
        events = f" with {found.events:,} events" if found.events else ""
        record_notes.append(f"{contestant.label}: {answers:,} answers, {found.ok:,} records of them{events}.")
        if found.ok < answers or found.outcomes.keys() - CUT_OFF:
            missing.append(f"{contestant.label}: {answers} answers, but {found}")
    return record_notes, missing
