"""How a batch gets into the database: the cheapest statements that each one offers, behind one interface.

A writer works on the connection of the thread that calls it and writes a batch in one transaction. It returns the
ids of calls that somebody else had settled already: of those it wrote nothing.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Protocol
from uuid import UUID

import orjson
from django.db import connection, models, transaction
from django.db.models import Model

from tools_app.audit import figures
from tools_app.audit.chain import heads
from tools_app.audit.entries import Batch, Ending
from tools_app.audit.payloads import as_stored
from tools_app.audit.rows import CALL_COLUMNS, RUNNING_COLUMNS, Answer, Payload, Said
from tools_app.models import Call, CallAnswer, CallEvent, CallFigures, CallPayload, RunningCall

Row = Sequence[Any]
Table = tuple[type[Model], Sequence[str]]

RUNNING: Table = (RunningCall, RUNNING_COLUMNS)
CALLS: Table = (Call, CALL_COLUMNS)
PAYLOADS: Table = (CallPayload, Payload._fields)
ANSWERS: Table = (CallAnswer, Answer._fields)
EVENTS: Table = (CallEvent, Said._fields)
FIGURES: Table = (CallFigures, figures.COLUMNS)


# What stands behind the seconds in orjson's text of a time: the offset and a quotation mark.
BEYOND_SECONDS = len('+00:00"')
# Rows in one INSERT: well below SQLite's limit of 32,766 variables, and few enough statements to stay prepared.
MOST_ROWS = 32
RANDOM_ID = "-abs(random() >> 1) - 1"


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

    def add(self, rows: list[Row]) -> None:
        """Add the numbers of `rows`, in the order of `figures.COLUMNS`, to the figures of the same kinds."""


def write(batch: Batch, statements: Statements) -> set[UUID]:
    """Write a batch by means of `statements`."""
    settling = [entry.call_id for entry in batch.endings if entry.settles]
    late = set(settling) - statements.settle(settling) if settling else set()
    endings = [entry for entry in batch.endings if entry.call_id not in late] if late else batch.endings
    for table, rows in _inserts(batch, endings):
        if rows:
            statements.insert(table, rows)
    if endings:
        statements.add(figures.rows_of(endings))
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

    def add(self, rows: list[Row]) -> None:
        """Add the numbers of `rows` to the figures of the same kinds."""
        for start in range(0, len(rows), MOST_ROWS):
            part = rows[start : start + MOST_ROWS]
            self._raw.execute(_adding_rows_sql(len(part)), _plain_figures(part))


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
    names = _named(columns)
    marks = f"({', '.join('?' * len(columns))})"
    return f'INSERT INTO "{model._meta.db_table}" ({names}) VALUES {", ".join([marks] * rows)}'  # noqa: S608


def _plain_figures(rows: list[Row]) -> list[Any]:
    """The same as `_plain` makes of them, at half the price: every batch has some."""
    plain: list[Any] = []
    for tenant_id, begins_at, seconds, process, tool_name, api_key_id, *rest in rows:
        plain += (tenant_id.hex, _as_text(begins_at), seconds, process.hex, tool_name, api_key_id.hex)
        plain += rest
    return plain


@lru_cache(maxsize=MOST_ROWS)
def _adding_rows_sql(rows: int) -> str:
    """A row that is new gets an id from below zero: the highest id that was tried costs a page more in each batch."""
    marks = f"({RANDOM_ID}, {', '.join('?' * len(figures.COLUMNS))})"
    table, names = CallFigures._meta.db_table, _named(("id", *figures.COLUMNS))
    return f'INSERT INTO "{table}" ({names}) VALUES {", ".join([marks] * rows)}{_adding_sql()}'  # noqa: S608


@cache
def _adding_sql() -> str:
    """What makes an INSERT of figures add to a row that is there already."""
    table = CallFigures._meta.db_table
    sums = ", ".join(f'"{name}" = "{table}"."{name}" + excluded."{name}"' for name in figures.NUMBER_COLUMNS)
    return f" ON CONFLICT ({_named(figures.KIND_COLUMNS)}) DO UPDATE SET {sums}"


def _named(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


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
        names = _named(columns)
        with self._raw.cursor() as cursor, cursor.copy(f'COPY "{model._meta.db_table}" ({names}) FROM STDIN') as copy:
            for row in rows:
                copy.write_row(row)

    def settle(self, ids: list[UUID]) -> set[UUID]:
        """Delete these running calls; the ids of those that were there."""
        sql = f'DELETE FROM "{RunningCall._meta.db_table}" WHERE "id" = ANY(%s) RETURNING "id"'  # noqa: S608
        with self._raw.cursor() as cursor:
            return {row[0] for row in cursor.execute(sql, (ids,))}

    def add(self, rows: list[Row]) -> None:
        """Add the numbers of `rows` to the figures of the same kinds."""
        text = orjson.dumps([_numbers_only(row) for row in rows]).decode()
        with self._raw.cursor() as cursor:
            cursor.execute(_adding_json_sql(), (text,))


def _numbers_only(row: Row) -> dict[str, Any]:
    """A row of figures by its columns, without the zeros, which are most of it."""
    return {name: value for name, value in zip(figures.COLUMNS, row, strict=True) if value != 0}


@cache
def _adding_json_sql() -> str:
    """One parameter and one text, however many rows: hundreds of parameters are dear to send."""
    table = CallFigures._meta.db_table
    numbers = ", ".join(f'coalesce("{name}", 0)' for name in figures.NUMBER_COLUMNS)
    rows = f'SELECT {_named(figures.KIND_COLUMNS)}, {numbers} FROM json_populate_recordset(NULL::"{table}", %s)'  # noqa: S608
    return f'INSERT INTO "{table}" ({_named(figures.COLUMNS)}) {rows}{_adding_sql()}'


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

    def add(self, rows: list[Row]) -> None:
        """Add the numbers of `rows` to the figures of the same kinds."""
        count = len(figures.KIND_COLUMNS)
        for row in rows:
            kind = dict(zip(figures.KIND_COLUMNS, row, strict=False))
            numbers = dict(zip(figures.NUMBER_COLUMNS, row[count:], strict=True))
            sums = {name: models.F(name) + number for name, number in numbers.items()}
            if not CallFigures.objects.filter(**kind).update(**sums):
                CallFigures.objects.create(**kind, **numbers)


def portable_writer(batch: Batch) -> set[UUID]:
    """One transaction through the ORM."""
    with heads, transaction.atomic():
        return write(batch, PortableStatements())


def statements() -> Statements:
    """Those for the configured database, on this thread's connection, which is in a transaction of Django's."""
    if connection.vendor == "sqlite":
        return SqliteStatements(connection.connection)
    return PostgresStatements(connection.connection) if connection.vendor == "postgresql" else PortableStatements()


_WRITERS: dict[str, Writer] = {"sqlite": sqlite_writer, "postgresql": postgres_writer}


def writer() -> Writer:
    """The best writer for the configured database."""
    return _WRITERS.get(connection.vendor, portable_writer)
