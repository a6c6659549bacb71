"""Checks of the database: reachable, migrated, durable, fast enough, and with a correct clock."""

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from tools_app.audit import partitions
from tools_app.core import schema_state
from tools_app.doctor.findings import Finding, grade, ok, problem
from tools_app.models import Process, SessionMessage

WRITES = 5
SLOW_SECONDS = 0.1
MAX_SKEW_SECONDS = 2.0
PROBLEM_SKEW_SECONDS = 60.0
MIN_POSTGRESQL_VERSION = 140_000
# Database threads, recorder, heartbeat, housekeeping, health checks and pages of one process.
CONNECTIONS_PER_PROCESS = 13
IDLE_SECONDS = 60
MAX_NAMED = 5
SYNCHRONOUS_FULL = 2


def reachable() -> Iterator[Finding]:
    """Check that the database answers. The next checks require it."""
    connection.ensure_connection()
    version = ".".join(map(str, connection.get_database_version()))
    yield ok("database", f"{connection.display_name} {version} is available")


def migrations() -> Iterator[Finding]:
    """Check that the tables match this code."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    missing = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in plan[-MAX_NAMED:])
    yield grade(
        "migrations",
        f"{len(plan)} not applied: {missing}" if plan else "all applied",
        "Run python manage.py migrate.",
        is_problem=bool(plan),
    )
    if unknown := schema_state.unknown_migrations():
        yield problem(
            "migrations",
            f"the database has {', '.join(unknown)}, unknown to this code: the code is older than the database",
            "Deploy the version that contains these migrations.",
        )


def clock() -> Iterator[Finding]:
    """Check that the clocks of database and host agree."""
    if connection.vendor != "postgresql":
        return
    started_at = timezone.now()
    (database_time,) = _row("SELECT clock_timestamp()")
    host_time = started_at + (timezone.now() - started_at) / 2
    skew = abs((database_time - host_time).total_seconds())
    yield grade(
        "clock",
        f"{skew:.2f} seconds difference from the database",
        "Synchronise both hosts with NTP: the expiry of keys and the time of records depend on it.",
        is_problem=skew > PROBLEM_SKEW_SECONDS,
        is_warning=skew > MAX_SKEW_SECONDS,
    )


def write_latency() -> Iterator[Finding]:
    """Check the time of a durable commit: every call waits for one."""
    durations = []
    for _ in range(WRITES):
        started_at = perf_counter()
        row = SessionMessage.objects.create(session_id=uuid4(), sealed=b"")
        durations.append(perf_counter() - started_at)
        row.delete()
    median_duration = median(durations)
    yield grade(
        "writes",
        f"a durable commit takes {median_duration * 1000:.1f} ms (median of {WRITES})",
        "Use a disk with a faster fsync, closer to the hub: every call waits for a commit.",
        is_warning=median_duration > SLOW_SECONDS,
    )


# --- SQLite -----------------------------------------------------------------------------------------------------


def sqlite() -> Iterator[Finding]:
    """Check the SQLite settings for durable commits and concurrent reads."""
    if connection.vendor != "sqlite":
        return
    (journal,), (synchronous,) = _row("PRAGMA journal_mode"), _row("PRAGMA synchronous")
    yield grade(
        "journal",
        f"journal_mode is {journal}",
        "No other program should change it. Set it back: python manage.py shell -c 'from django.db import connection; "
        'connection.cursor().execute("PRAGMA journal_mode=WAL")\'',
        is_problem=str(journal).lower() != "wal",
    )
    yield grade(
        "durability",
        f"synchronous is {'FULL' if synchronous == SYNCHRONOUS_FULL else synchronous}",
        "Do not override init_command in the settings: records must survive a power failure.",
        is_problem=synchronous < SYNCHRONOUS_FULL,
    )
    (quick_check,) = _row("PRAGMA quick_check(1)")
    yield grade("integrity", f"quick_check says {quick_check}", "Restore a backup.", is_problem=quick_check != "ok")


# --- PostgreSQL -------------------------------------------------------------------------------------------------


def postgresql() -> Iterator[Finding]:
    """Check the PostgreSQL settings for durable commits and reliable operation."""
    if connection.vendor != "postgresql":
        return
    number = int(_setting("server_version_num"))
    yield grade(
        "postgresql",
        f"version {_setting('server_version')}",
        "Upgrade to PostgreSQL 14 or newer.",
        is_problem=number < MIN_POSTGRESQL_VERSION,
    )
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        value = _setting(name)
        yield grade(
            "durability",
            f"{name} is {value}",
            f"Set {name} = on: committed records must survive a crash.",
            is_problem=value == "off",
        )
    yield _idle_transactions()


def connections() -> Iterator[Finding]:
    """Check that there are enough connections for every process."""
    if connection.vendor != "postgresql":
        return
    max_connections = int(_setting("max_connections")) - int(_setting("superuser_reserved_connections"))
    processes = max(1, Process.objects.count())
    needed = processes * CONNECTIONS_PER_PROCESS
    yield grade(
        "connections",
        f"{max_connections} allowed, up to {needed} for {processes} processes of the hub",
        "Raise max_connections, or run fewer processes: a process without a connection cannot record calls.",
        is_warning=needed > max_connections,
    )


def _idle_transactions() -> Finding:
    (count, longest) = _row(
        "SELECT count(*), coalesce(max(extract(epoch FROM now() - state_change)), 0) FROM pg_stat_activity "
        "WHERE datname = current_database() AND state LIKE 'idle in transaction%%' "
        "AND state_change < now() - make_interval(secs => %s)",
        [IDLE_SECONDS],
    )
    return grade(
        "transactions",
        f"{count} idle for more than {IDLE_SECONDS} seconds" + (f", the longest for {longest:.0f}" if count else ""),
        "Terminate them and find their origin in pg_stat_activity: they block vacuuming.",
        is_warning=bool(count),
    )


def months_ahead() -> Iterator[Finding]:
    """Check that partitions exist for the next months."""
    if not partitions.in_use():
        return
    current_month = partitions.Month.of(timezone.now())
    missing = {current_month.after(ahead) for ahead in range(partitions.MONTHS_AHEAD + 1)} - set(partitions.months())
    names = ", ".join(map(str, sorted(missing)))
    yield grade(
        "partitions",
        f"missing for {names}" if missing else f"created for {partitions.MONTHS_AHEAD} months ahead",
        "Run python manage.py prune, and run it daily with Celery beat or cron.",
        is_warning=bool(missing),
    )


def _setting(name: str) -> str:
    return str(_row("SELECT current_setting(%s)", [name])[0])


def _row(query: str, values: list[Any] | None = None) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        row: tuple[Any, ...] = cursor.fetchone()
        return row
