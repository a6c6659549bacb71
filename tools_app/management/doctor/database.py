"""The database: reachable, migrated, durable, quick enough, and right about the time."""

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from tools_app.audit import partitions
from tools_app.management.doctor.findings import Finding, judged, ok, problem
from tools_app.models import Process, SessionMessage

WRITES = 5
SLOW_SECONDS = 0.1
SKEW_SECONDS = 2.0
MUCH_SKEW_SECONDS = 60.0
OLDEST_POSTGRESQL = 140_000
# Store threads, recorder, heart, housekeeping, health checks and pages of one process.
CONNECTIONS_OF_A_PROCESS = 13
IDLE_SECONDS = 60
MOST_NAMED = 5
FULL = 2


def reachable() -> Iterator[Finding]:
    """Whether it answers. What follows asks more of it."""
    connection.ensure_connection()
    yield ok("database", f"{connection.display_name} {_version()} answers")


def _version() -> str:
    return ".".join(map(str, connection.get_database_version()))


def migrations() -> Iterator[Finding]:
    """Whether its tables are those of this code."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    missing = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in plan[-MOST_NAMED:])
    yield judged(
        "migrations",
        f"{len(plan)} not applied: {missing}" if plan else "all applied",
        "Run python manage.py migrate.",
        bad=bool(plan),
    )
    known = set(executor.loader.disk_migrations or ())
    newer = sorted(name for app, name in executor.loader.applied_migrations if app == "tools_app")
    newer = [name for name in newer if ("tools_app", name) not in known]
    if newer:
        yield problem(
            "migrations",
            f"the database knows {', '.join(newer)}, this code does not: it is older than the database",
            "Deploy the code that made these migrations.",
        )


def clock() -> Iterator[Finding]:
    """Whether database and host agree about the time."""
    if connection.vendor != "postgresql":
        return
    began = timezone.now()
    (there,) = _row("SELECT clock_timestamp()")
    here = began + (timezone.now() - began) / 2
    skew = abs((there - here).total_seconds())
    yield judged(
        "clock",
        f"{skew:.2f} seconds apart from the database's",
        "Let both hosts keep the time (NTP): keys expire, and records are dated, by it.",
        bad=skew > MUCH_SKEW_SECONDS,
        doubtful=skew > SKEW_SECONDS,
    )


def write_latency() -> Iterator[Finding]:
    """How long a commit takes until it is durable: every call waits for one."""
    taken = []
    for _ in range(WRITES):
        began = perf_counter()
        row = SessionMessage.objects.create(session_id=uuid4(), sealed=b"")
        taken.append(perf_counter() - began)
        row.delete()
    middle = median(taken)
    yield judged(
        "writes",
        f"a durable commit takes {middle * 1000:.1f} ms (median of {WRITES})",
        "Use a disk with a quick fsync, nearer to the hub: every call waits for a commit.",
        doubtful=middle > SLOW_SECONDS,
    )


# --- SQLite -----------------------------------------------------------------------------------------------------


def sqlite() -> Iterator[Finding]:
    """What makes a commit on SQLite durable, and lets others read meanwhile."""
    if connection.vendor != "sqlite":
        return
    (journal,), (synchronous,) = _row("PRAGMA journal_mode"), _row("PRAGMA synchronous")
    yield judged(
        "journal",
        f"journal_mode is {journal}",
        "Let no other program change it: python manage.py shell -c 'from django.db import connection; "
        'connection.cursor().execute("PRAGMA journal_mode=WAL")\'',
        bad=str(journal).lower() != "wal",
    )
    yield judged(
        "durability",
        f"synchronous is {'FULL' if synchronous == FULL else synchronous}",
        "Do not override the settings' init_command: a record must survive a power cut.",
        bad=synchronous < FULL,
    )
    (sound,) = _row("PRAGMA quick_check(1)")
    yield judged("integrity", f"quick_check says {sound}", "Restore a backup.", bad=sound != "ok")


# --- PostgreSQL -------------------------------------------------------------------------------------------------


def postgresql() -> Iterator[Finding]:
    """What makes a commit on PostgreSQL durable, and what keeps it from working."""
    if connection.vendor != "postgresql":
        return
    number = int(_setting("server_version_num"))
    yield judged(
        "postgresql", f"version {_setting('server_version')}", "Use 14 or newer.", bad=number < OLDEST_POSTGRESQL
    )
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        value = _setting(name)
        yield judged(
            "durability",
            f"{name} is {value}",
            f"Set {name} = on: a record that was confirmed must survive a crash.",
            bad=value == "off",
        )
    yield _idle_transactions()


def connections() -> Iterator[Finding]:
    """Whether there are enough of them for every process."""
    if connection.vendor != "postgresql":
        return
    most = int(_setting("max_connections")) - int(_setting("superuser_reserved_connections"))
    processes = max(1, Process.objects.count())
    needed = processes * CONNECTIONS_OF_A_PROCESS
    yield judged(
        "connections",
        f"{most} allowed, up to {needed} for {processes} processes of the hub",
        "Raise max_connections, or run fewer processes: who gets no connection cannot record.",
        doubtful=needed > most,
    )


def _idle_transactions() -> Finding:
    (count, longest) = _row(
        "SELECT count(*), coalesce(max(extract(epoch FROM now() - state_change)), 0) FROM pg_stat_activity "
        "WHERE datname = current_database() AND state LIKE 'idle in transaction%%' "
        "AND state_change < now() - make_interval(secs => %s)",
        [IDLE_SECONDS],
    )
    return judged(
        "transactions",
        f"{count} idle for more than {IDLE_SECONDS} seconds" + (f", the longest for {longest:.0f}" if count else ""),
        "End them and find who leaves them open (pg_stat_activity): they keep the database from cleaning up.",
        doubtful=bool(count),
    )


def months_ahead() -> Iterator[Finding]:
    """Whether the months to come have their partitions."""
    if not partitions.in_use():
        return
    this = partitions.Month.of(timezone.now())
    missing = {this.after(ahead) for ahead in range(partitions.MONTHS_AHEAD + 1)} - set(partitions.months())
    names = ", ".join(map(str, sorted(missing)))
    yield judged(
        "partitions",
        f"missing for {names}" if missing else f"there for {partitions.MONTHS_AHEAD} months ahead",
        "Run python manage.py prune, and see to it that Celery beat, or cron, does so daily.",
        doubtful=bool(missing),
    )


def _setting(name: str) -> str:
    return str(_row("SELECT current_setting(%s)", [name])[0])


def _row(query: str, values: list[Any] | None = None) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        row: tuple[Any, ...] = cursor.fetchone()
        return row
