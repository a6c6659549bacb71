"""How a batch gets into the database: the cheapest statements that each one offers, behind one interface.

A writer works on the connection of the thread that calls it and writes a batch in one transaction. It returns the
ids of calls that somebody else had settled already: of those it wrote nothing.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol
from uuid import UUID

import orjson
from django.db import connection, models, transaction
from django.db.models import Model

from tools_app.audit.chain import heads
from tools_app.audit.entries import Batch, Ending
from tools_app.audit.payloads import as_stored
from tools_app.audit.rows import CALL_COLUMNS, RUNNING_COLUMNS, Answer, Payload, Said
from tools_app.models import Call, CallAnswer, CallEvent, CallPayload, RunningCall

Row = Sequence[Any]
Table = tuple[type[Model], Sequence[str]]

RUNNING: Table = (RunningCall, RUNNING_COLUMNS)
CALLS: Table = (Call, CALL_COLUMNS)
PAYLOADS: Table = (CallPayload, Payload._fields)
ANSWERS: Table = (CallAnswer, Answer._fields)
EVENTS: Table = (CallEvent, Said._fields)


# What stands behind the seconds in orjson's text of a time: the offset and a quotation mark.
BEYOND_SECONDS = len('+00:00"')
# Rows in one INSERT: well below SQLite's limit of 32,766 variables, and few enough statements to stay prepared.
MOST_ROWS = 32


class Writer(Protocol):
    """Writes one batch durably and returns the ids of calls that were settled before."""

    def __call__(self, batch: Batch) -> set[UUID]:
        """Write `batch`."""


class Statements(Protocol):
    """The few statements by which databases differ. All are called inside one transaction."""

    def insert(self, table: Table, rows: list[Row]) -> None:
        """Add `rows` to `table`."""

    def settle(self, ids: list[UUID]) -> set[UUID]:
        """Delete these running calls; the ids of those that were there."""


def write(batch: Batch, statements: Statements) -> set[UUID]:
    """Write a batch by means of `statements`."""
    settling = [entry.call_id for entry in batch.endings if entry.settles]
    late = set(settling) - statements.settle(settling) if settling else set()
    endings = [entry for entry in batch.endings if entry.call_id not in late] if late else batch.endings
    for table, rows in _inserts(batch, endings):
        if rows:
            statements.insert(table, rows)
    return late


def _inserts(batch: Batch, endings: list[Ending]) -> Iterable[tuple[Table, list[Row]]]:
    yield RUNNING, [entry.facts + entry.begun for entry in batch.beginnings]
    yield EVENTS, [entry.said for entry in batch.sayings]
    yield CALLS, heads.link(endings)
    yield PAYLOADS, [as_stored(entry.payload) for entry in endings]
    yield ANSWERS, [entry.answer for entry in endings if entry.answer is not None]


class SqliteStatements:
    """Inserts of many rows on the driver's own connection: no ORM, and no statement built twice.

    Not `executemany`: the driver lets other threads run between its rows, and a busy event loop then makes the
    recorder wait for each of them.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def insert(self, table: Table, rows: list[Row]) -> None:
        """Add `rows` to `table`."""
        for start in range(0, len(rows), MOST_ROWS):
            part = rows[start : start + MOST_ROWS]
            self._raw.execute(_insert_sql(table, len(part)), _plain(table, part))

    def settle(self, ids: list[UUID]) -> set[UUID]:
        """Delete these running calls; the ids of those that were there."""
        sql = f'DELETE FROM "{RunningCall._meta.db_table}" WHERE "id" = ?'  # noqa: S608 - our own table name
        return {id for id in ids if self._raw.execute(sql, (id.hex,)).rowcount}


def sqlite_writer(batch: Batch) -> set[UUID]:
    """One IMMEDIATE transaction; durable when it returns, given `PRAGMA synchronous=FULL`."""
    connection.ensure_connection()
    raw = connection.connection
    with heads:
        raw.execute("BEGIN IMMEDIATE")
        try:
            late = write(batch, SqliteStatements(raw))
        except BaseException:
            raw.execute("ROLLBACK")
            raise
        raw.execute("COMMIT")
    return late


@lru_cache(maxsize=MOST_ROWS * 5)
def _insert_sql(table: Table, rows: int) -> str:
    model, columns = table
    names = ", ".join(f'"{column}"' for column in columns)
    marks = f"({', '.join('?' * len(columns))})"
    return f'INSERT INTO "{model._meta.db_table}" ({names}) VALUES {", ".join([marks] * rows)}'  # noqa: S608


def _plain(table: Table, rows: list[Row]) -> list[Any]:
    """The values of `rows`, one after another, as Django's SQLite backend would store them."""
    ids, times, flags = _special(table)
    plain: list[Any] = []
    for row in rows:
        start = len(plain)
        plain += row
        for column in ids:
            value = plain[start + column]
            if value is not None:
                plain[start + column] = "%032x" % value.int  # noqa: UP031 - half the price of the alternatives
        for column in times:
            value = plain[start + column]
            if value is not None:
                plain[start + column] = _as_text(value)
        for column in flags:
            value = plain[start + column]
            if value is not None:
                plain[start + column] = int(value)
    return plain


def _as_text(moment: datetime) -> str:
    """A time in UTC as Django's SQLite backend would store it, at a tenth of the price of `str`."""
    return orjson.dumps(moment)[1:-BEYOND_SECONDS].replace(b"T", b" ").decode()


@lru_cache(maxsize=8)
def _special(table: Table) -> tuple[list[int], list[int], list[int]]:
    """Where a row has ids, times (all are in UTC) and flags: the driver knows neither, and asks around for the last."""
    model, columns = table
    fields = {field.attname: field for field in model._meta.concrete_fields}
    kinds = [type(_referred(fields[column])) for column in columns]
    return (
        _positions(kinds, models.UUIDField),
        _positions(kinds, models.DateTimeField),
        _positions(kinds, models.BooleanField),
    )


def _referred(field: "models.Field[Any, Any]") -> "models.Field[Any, Any]":
    """The field whose values `field` holds: for a reference, the key that it refers to."""
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    return field


def _positions(kinds: list[type], kind: type) -> list[int]:
    return [position for position, found in enumerate(kinds) if found is kind]


class PostgresStatements:
    """COPY: rows stream in without a statement each."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def insert(self, table: Table, rows: list[Row]) -> None:
        """Add `rows` to `table`."""
        model, columns = table
        names = ", ".join(f'"{column}"' for column in columns)
        with self._raw.cursor() as cursor, cursor.copy(f'COPY "{model._meta.db_table}" ({names}) FROM STDIN') as copy:
            for row in rows:
                copy.write_row(row)

    def settle(self, ids: list[UUID]) -> set[UUID]:
        """Delete these running calls; the ids of those that were there."""
        sql = f'DELETE FROM "{RunningCall._meta.db_table}" WHERE "id" = ANY(%s) RETURNING "id"'  # noqa: S608
        with self._raw.cursor() as cursor:
            return {row[0] for row in cursor.execute(sql, (ids,))}


def postgres_writer(batch: Batch) -> set[UUID]:
    """One transaction on psycopg's own connection."""
    connection.ensure_connection()
    raw = connection.connection
    with heads, raw.transaction():
        return write(batch, PostgresStatements(raw))


class PortableStatements:
    """What every database that Django knows can do."""

    def insert(self, table: Table, rows: list[Row]) -> None:
        """Add `rows` to `table`."""
        model, columns = table
        instances = [model(**dict(zip(columns, row, strict=True))) for row in rows]
        model._default_manager.bulk_create(instances)

    def settle(self, ids: list[UUID]) -> set[UUID]:
        """Delete these running calls; the ids of those that were there."""
        return {id for id in ids if RunningCall.objects.filter(pk=id).delete()[0]}


def portable_writer(batch: Batch) -> set[UUID]:
    """One transaction through the ORM."""
    with heads, transaction.atomic():
        return write(batch, PortableStatements())


_WRITERS: dict[str, Writer] = {"sqlite": sqlite_writer, "postgresql": postgres_writer}


def writer() -> Writer:
    """The best writer for the configured database."""
    return _WRITERS.get(connection.vendor, portable_writer)
