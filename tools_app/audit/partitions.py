"""Monthly partitions of the audit log on PostgreSQL, with a default partition.

Calls, payloads and events are partitioned by the time in the call's id, so a call and its rows are in the same month.
Future partitions are created ahead of time. Rows without a monthly partition go to the default partition, so no insert
fails for want of one. On other databases the tables are plain and this module does nothing.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from django.db import Error, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from tools_app.core.ids import least_id, made_at
from tools_app.models import Call, CallEvent, CallPayload

log = logging.getLogger(__name__)

MONTHS_AHEAD: Final = 2
# Advisory lock: one process at a time prunes, or creates or drops partitions.
LOCK: Final = 0x6D63_7068_7063
# How long calls, and readers of a single month, may be blocked by a pending lock.
LOCK_TIMEOUT: Final = "200ms"
DETACH_TIMEOUT: Final = "5s"
# How long the default partition may be scanned for rows of a month that is attached.
SCAN_TIMEOUT: Final = "2s"


class PartitionedTable(NamedTuple):
    """A partitioned table and its partition key."""

    name: str
    key: str

    @property
    def default(self) -> str:
        """The partition for rows without a month."""
        return f"{self.name}_default"


CALLS: Final = PartitionedTable(Call._meta.db_table, "id")
# In the recorder's write order: locks in another order could deadlock.
TABLES: Final = (
    PartitionedTable(CallEvent._meta.db_table, "call_id"),
    CALLS,
    PartitionedTable(CallPayload._meta.db_table, "call_id"),
)


class Month(NamedTuple):
    """A calendar month, in UTC."""

    year: int
    number: int

    @classmethod
    def of(cls, moment: datetime) -> "Month":
        """Return the month that contains `moment`."""
        utc = moment.astimezone(UTC)
        return cls(utc.year, utc.month)

    @property
    def begin(self) -> datetime:
        """The start of the month."""
        return datetime(self.year, self.number, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The start of the next month."""
        return self.after(1).begin

    def after(self, months: int) -> "Month":
        """Return the month that is `months` later."""
        years, number = divmod(self.number - 1 + months, 12)
        return Month(self.year + years, number + 1)

    def of_table(self, table: PartitionedTable) -> str:
        """Return the name of the partition of `table`."""
        return f"{table.name}_{self.year:04d}_{self.number:02d}"

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.number:02d}"


class Span(NamedTuple):
    """The ids of the calls in a month's partition: `first` inclusive, `end` exclusive."""

    first: UUID
    end: UUID


def in_use() -> bool:
    """Return whether this database has partitions."""
    return connection.vendor == "postgresql"


def months() -> dict[Month, Span]:
    """Return the months that have partitions, oldest first; empty on a database without partitions."""
    if not in_use():
        return {}
    with connection.cursor() as cursor:
        return attached(cursor)


def attached(cursor: CursorWrapper) -> dict[Month, Span]:
    """Return the months that have partitions, for a cursor on PostgreSQL."""
    cursor.execute(
        "SELECT relname, pg_get_expr(relpartbound, oid) FROM pg_class JOIN pg_inherits ON oid = inhrelid "
        "WHERE inhparent = %s::regclass ORDER BY relname",
        [CALLS.name],
    )
    found: dict[Month, Span] = {}
    for name, bounds in cursor.fetchall():
        month = re.search(r"_(\d{4})_(\d{2})$", name)
        span = re.search(r"FROM \('([0-9a-f-]+)'\) TO \('([0-9a-f-]+)'\)", bounds)
        if month and span:
            found[Month(int(month[1]), int(month[2]))] = Span(UUID(span[1]), UUID(span[2]))
    return found


@contextmanager
def partition_lock() -> Iterator[None]:
    """Open a transaction in which no other process prunes, creates or drops partitions.

    Readers of rows wait at most READERS_WAIT. On SQLite, any transaction that writes is exclusive.
    """
    with transaction.atomic():
        if in_use():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
                cursor.execute(f"SET LOCAL lock_timeout = '{DETACH_TIMEOUT}'")
        yield


def create_upcoming(since: datetime | None = None) -> list[Month]:
    """Create the missing partitions of this month, or from that of `since`, to MONTHS_AHEAD more; return the new ones.

    A failure is logged and retried another day; until then the default partition takes the rows.
    """
    created: list[Month] = []
    if not in_use():
        return created
    last, existing = Month.of(timezone.now()).after(MONTHS_AHEAD), months()
    month = Month.of(since or timezone.now())
    while month <= last:
        try:
            if month not in existing:
                with partition_lock(), connection.cursor() as cursor:
                    is_new = month not in attached(cursor) and _create(cursor, month)
                if is_new:
                    created.append(month)
        except Error as problem:
            log.warning("The partitions of %s could not be made yet: %s", month, problem)
        month = month.after(1)
    return created


def _create(cursor: CursorWrapper, month: Month) -> bool:
    """Create the partitions of a month in this transaction. Return False if the default partition covers its rest.

    If the default partition holds rows of the month, the new partition starts on the day after the newest of them: they
    stay where they are, and nothing waits while rows are moved.
    """
    newest = []
    for table in TABLES:
        rows = f'SELECT "{table.key}" FROM "{table.default}"'  # noqa: S608 - our own names, as in all that follows
        of_month = f'"{table.key}" >= %s AND "{table.key}" < %s ORDER BY "{table.key}" DESC LIMIT 1'
        cursor.execute(f"{rows} WHERE {of_month}", [least_id(month.begin), least_id(month.end)])
        newest += [made_at(id) for (id,) in cursor.fetchall()]
    begin = month.begin
    if newest:
        # During the creation, the default partition gets no rows of a later day.
        last = max(timezone.now().astimezone(UTC), *newest)
        begin = last.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if begin >= month.end:
        return False
    cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    cursor.execute(f"SET LOCAL statement_timeout = '{SCAN_TIMEOUT}'")
    for table in TABLES:
        attach(cursor, table, month, begin)
    return True


def attach(cursor: CursorWrapper, table: PartitionedTable, month: Month, begin: datetime) -> None:
    """Create a month's partition and attach it for rows from `begin` on.

    It is attached rather than created in place, which would lock the whole table.
    """
    name = month.of_table(table)
    cursor.execute(
        f'CREATE TABLE "{name}" '
        f'(LIKE "{table.name}" INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING COMPRESSION)'
    )
    cursor.execute(
        f'ALTER TABLE "{table.name}" ATTACH PARTITION "{name}" '
        f"FOR VALUES FROM ('{least_id(begin)}') TO ('{least_id(month.end)}')"
    )


def drop(month: Month, may_go: Callable[[Span], bool]) -> bool:
    """Drop the partitions of a month if `may_go` returns True, in one transaction with what `may_go` writes.

    `may_go` is called when the month can no longer be written to. Raises OperationalError, without effect, if readers
    hold their locks so long that calls would have to wait.
    """
    with partition_lock(), connection.cursor() as cursor:
        span = attached(cursor).get(month)
        if span is None:
            return False
        partitions = ", ".join(f'"{month.of_table(table)}"' for table in TABLES)
        cursor.execute(f"LOCK TABLE ONLY {partitions} IN SHARE MODE")
        if not may_go(span):
            return False
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        for table in TABLES:
            cursor.execute(f'LOCK TABLE ONLY "{table.name}" IN ACCESS EXCLUSIVE MODE')
        cursor.execute(f"DROP TABLE {partitions}")
    return True
