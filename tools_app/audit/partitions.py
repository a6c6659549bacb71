"""The audit log on PostgreSQL: calls, payloads and events in a partition for each month, and one for all the rest.

The months go by the time in a call's id, so that a call is in one month with all that belongs to it. Those to come
are made ahead. A row without a month goes to the default partition: no insert ever fails for want of one. Other
databases have plain tables, and nothing here does anything there.
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

from tools_app.models import Call, CallEvent, CallPayload
from tools_app.models.ids import least_id, made_at

log = logging.getLogger(__name__)

MONTHS_AHEAD: Final = 2
# Of all processes, one at a time prunes, or makes or drops partitions.
LOCK: Final = 0x6D6370687562
# How long calls, and readers of one month, may have to stand behind a lock that is waited for.
CALLS_WAIT: Final = "200ms"
READERS_WAIT: Final = "5s"
# How long the default partition may be looked through for rows of a month that is attached.
LOOK: Final = "2s"


class Parted(NamedTuple):
    """A table in partitions, and the column that parts it."""

    name: str
    key: str

    @property
    def default(self) -> str:
        """Its partition for rows without a month."""
        return f"{self.name}_default"


CALLS: Final = Parted(Call._meta.db_table, "id")
# In the order in which the recorder writes to them: locked in another one, the two could wait for each other.
TABLES: Final = (
    Parted(CallEvent._meta.db_table, "call_id"),
    CALLS,
    Parted(CallPayload._meta.db_table, "call_id"),
)


class Month(NamedTuple):
    """A calendar month, in UTC."""

    year: int
    number: int

    @classmethod
    def of(cls, moment: datetime) -> "Month":
        """The month in which `moment` is."""
        utc = moment.astimezone(UTC)
        return cls(utc.year, utc.month)

    @property
    def begin(self) -> datetime:
        """Its first moment."""
        return datetime(self.year, self.number, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The first moment after it."""
        return self.after(1).begin

    def after(self, months: int) -> "Month":
        """The month that comes so many months later."""
        years, number = divmod(self.number - 1 + months, 12)
        return Month(self.year + years, number + 1)

    def of_table(self, table: Parted) -> str:
        """The name of its partition."""
        return f"{table.name}_{self.year:04d}_{self.number:02d}"

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.number:02d}"


class Span(NamedTuple):
    """The calls of a month's partition, by their ids: from `first` up to, and without, `end`."""

    first: UUID
    end: UUID


def in_use() -> bool:
    """Whether this database has partitions."""
    return connection.vendor == "postgresql"


def months() -> dict[Month, Span]:
    """The months that have partitions, oldest first; none on a database without them."""
    if not in_use():
        return {}
    with connection.cursor() as cursor:
        return attached(cursor)


def attached(cursor: CursorWrapper) -> dict[Month, Span]:
    """The same, for a cursor on PostgreSQL."""
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
def alone() -> Iterator[None]:
    """A transaction in which nobody else prunes, makes or drops partitions. Readers of rows wait READERS_WAIT at most.

    On SQLite that is any transaction that writes.
    """
    with transaction.atomic():
        if in_use():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
                cursor.execute(f"SET LOCAL lock_timeout = '{READERS_WAIT}'")
        yield


def make_ahead() -> list[Month]:
    """Make the partitions of this month and of MONTHS_AHEAD more, where they are missing; which were made.

    What cannot be made now is logged, and made another day: until then the default partition takes its rows.
    """
    if not in_use():
        return []
    this = Month.of(timezone.now())
    missing = {this.after(ahead) for ahead in range(MONTHS_AHEAD + 1)} - set(months())
    return [month for month in sorted(missing) if _made(month)]


def make_since(moment: datetime) -> list[Month]:
    """Make the partitions of the months from `moment` up to this one, where they are missing; which were made."""
    if not in_use():
        return []
    month, this, there = Month.of(moment), Month.of(timezone.now()), months()
    made = []
    while month <= this:
        if month not in there and _made(month):
            made.append(month)
        month = month.after(1)
    return made


def _made(month: Month) -> bool:
    try:
        with alone(), connection.cursor() as cursor:
            return month not in attached(cursor) and _make(cursor, month)
    except Error as problem:
        log.warning("The partitions of %s could not be made yet: %s", month, problem)
        return False


def _make(cursor: CursorWrapper, month: Month) -> bool:
    """Make the partitions of a month, in this transaction. False if the default partition has the rest of it already.

    A month of which the default partition holds rows begins on the day after the last of them: they stay where they
    are, and nobody has to wait while they are moved.
    """
    begin = _free_from(cursor, month)
    if begin >= month.end:
        return False
    cursor.execute(f"SET LOCAL lock_timeout = '{CALLS_WAIT}'")
    cursor.execute(f"SET LOCAL statement_timeout = '{LOOK}'")
    for table in TABLES:
        attach(cursor, table, month, begin)
    return True


def _free_from(cursor: CursorWrapper, month: Month) -> datetime:
    """From when on the default partition holds nothing of a month, and will get nothing while that is made."""
    newest = [found for table in TABLES if (found := _newest_in_default(cursor, table, month))]
    if not newest:
        return month.begin
    last = max(timezone.now().astimezone(UTC), *map(made_at, newest))
    return last.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def _newest_in_default(cursor: CursorWrapper, table: Parted, month: Month) -> UUID | None:
    rows = f'SELECT "{table.key}" FROM "{table.default}"'  # noqa: S608 - our own names, as in all that follows
    of_month = f'"{table.key}" >= %s AND "{table.key}" < %s ORDER BY "{table.key}" DESC LIMIT 1'
    cursor.execute(f"{rows} WHERE {of_month}", [least_id(month.begin), least_id(month.end)])
    row = cursor.fetchone()
    return row[0] if row else None


def attach(cursor: CursorWrapper, table: Parted, month: Month, begin: datetime) -> None:
    """Make the partition of a month and let it take rows from `begin` on.

    It is attached, not made in place: that would lock the whole table.
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
    """Drop the partitions of a month if `may_go` says so, in one transaction with what that writes.

    `may_go` is asked when nobody can write to the month any more. Raises OperationalError if somebody reads for so
    long that calls would have to wait; nothing has happened then.
    """
    with alone(), connection.cursor() as cursor:
        span = attached(cursor).get(month)
        if span is None:
            return False
        partitions = ", ".join(f'"{month.of_table(table)}"' for table in TABLES)
        cursor.execute(f"LOCK TABLE ONLY {partitions} IN SHARE MODE")
        if not may_go(span):
            return False
        cursor.execute(f"SET LOCAL lock_timeout = '{CALLS_WAIT}'")
        for table in TABLES:
            cursor.execute(f'LOCK TABLE ONLY "{table.name}" IN ACCESS EXCLUSIVE MODE')
        cursor.execute(f"DROP TABLE {partitions}")
    return True
