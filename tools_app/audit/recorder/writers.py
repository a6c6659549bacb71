"""Database writers for batches of records, with the cheapest statements of each database.

A writer uses the connection of the calling thread and writes a batch in one transaction. It returns the ids of calls
that were already settled elsewhere, for which it writes nothing.
"""

from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol, cast
from uuid import UUID

import msgspec
import orjson
from django.db import DEFAULT_DB_ALIAS, connection, connections, models, transaction

from tools_app.audit.recorder.chain import ChainHeads, heads
from tools_app.audit.recorder.entries import Batch, Payload
from tools_app.audit.recorder.postgres import PostgresStatements, psycopg, stop_preparing
from tools_app.audit.recorder.tables import (
    ANSWERS,
    CALLS,
    EVENTS,
    PAYLOADS,
    RUNNING,
    Row,
    Statements,
    Table,
    adding_sql,
    and_queued,
    json_columns,
    named,
)
from tools_app.audit.stats import counters
from tools_app.core.packing import pack
from tools_app.core.sqlite.base import DatabaseWrapper
from tools_app.models import CallFigures, CallStatus, RunningCall

# The length of what follows the seconds in orjson's text of a time: the offset and a quotation mark.
BEYOND_SECONDS = len('+00:00"')
# Rows per INSERT: well below SQLite's limit of 32,766 variables, and few enough statements to stay prepared.
MAX_ROWS = 32
# Arguments and result of a call that exceed this together are stored compressed.
COMPRESS_BYTES = 4096
RANDOM_ID = "-abs(random() >> 1) - 1"


class Writer(Protocol):
    """Writes a batch durably and returns the ids of calls that were already settled."""

    def __call__(self, batch: Batch) -> set[UUID]:
        """Write `batch`."""


def write(batch: Batch, statements: Statements, chains: ChainHeads) -> set[UUID]:
    """Write a batch with `statements`, linked to `chains`, and return the ids of calls that were already settled."""
    late: set[UUID] = set()
    for only_queued in (False, True):
        settling = [entry.call_id for entry in batch.finished if entry.settles and entry.only_queued == only_queued]
        if settling:
            late |= set(settling) - statements.settle(settling, only_queued=only_queued)
    endings = [entry for entry in batch.finished if entry.call_id not in late] if late else batch.finished
    if batch.started:
        statements.insert(RUNNING, [entry.facts + entry.row for entry in batch.started])
    if batch.events:
        statements.insert(EVENTS, [entry.row for entry in batch.events])
        chains.events.note(entry.row for entry in batch.events)
    if endings:
        if batch.events and not all(chains.events.has(entry.call_id, entry.row.event_count) for entry in endings):
            # The digest of its events is part of a call's hash: where it is not known, `link` reads them.
            statements.flush()
        statements.insert(CALLS, chains.link(endings))
        statements.insert(PAYLOADS, [as_stored(entry.payload) for entry in endings])
        answers: list[Row] = [entry.answer for entry in endings if entry.answer is not None]
        if answers:
            statements.insert(ANSWERS, answers)
        statements.add(counters.rows_of(endings))
    return late


class SqliteStatements(msgspec.Struct):
    """Multi-row INSERTs on the driver's connection, without the ORM and with cached SQL.

    Not `executemany`: the driver lets other threads run between rows, and with a busy event loop the recorder waits at
    each row.
    """

    raw: Any

    def insert(self, table: Table, rows: list[Row]) -> None:
        """Add `rows` to `table`."""
        for start in range(0, len(rows), MAX_ROWS):
            part = rows[start : start + MAX_ROWS]
            self.raw.execute(_insert_sql(table, len(part)), _plain(table, part))

    def settle(self, ids: list[UUID], *, only_queued: bool = False) -> set[UUID]:
        """Delete these running calls, or only those still queued, and return the ids of the deleted ones."""
        sql = f'DELETE FROM "{RunningCall._meta.db_table}" WHERE "id" = ?{and_queued(only_queued)}'  # noqa: S608
        return {id for id in ids if self.raw.execute(sql, (id.hex,)).rowcount}

    def add(self, rows: list[Row]) -> None:
        """Add the numbers of `rows` to the figures of the same kinds."""
        for start in range(0, len(rows), MAX_ROWS):
            part = rows[start : start + MAX_ROWS]
            # As `_plain` does, at half the cost: every batch has figures.
            plain: list[Any] = []
            for tenant_id, begins_at, seconds, process, tool_name, api_key_id, *rest in part:
                plain += (tenant_id.hex, _as_text(begins_at), seconds, process.hex, tool_name, api_key_id.hex)
                plain += rest
            self.raw.execute(_adding_rows_sql(len(part)), plain)

    def flush(self) -> None:
        """Do nothing: every statement has been executed."""


def sqlite_writer(batch: Batch) -> set[UUID]:
    """Write a batch in one IMMEDIATE transaction; durable on return, given `PRAGMA synchronous=FULL`."""
    connection.ensure_connection()
    raw = connection.connection
    # Answers wait for this batch: it goes before the writes of other threads.
    with heads() as chains, cast("DatabaseWrapper", connections[DEFAULT_DB_ALIAS]).write_lock(first=True):
        raw.execute("BEGIN IMMEDIATE")
        try:
            late = write(batch, SqliteStatements(raw), chains)
        except BaseException:
            raw.execute("ROLLBACK")
            raise
        raw.execute("COMMIT")
    return late


@lru_cache(maxsize=MAX_ROWS * 5)
def _insert_sql(table: Table, rows: int) -> str:
    model, columns = table
    names = named(columns)
    marks = f"({', '.join('?' * len(columns))})"
    return f'INSERT INTO "{model._meta.db_table}" ({names}) VALUES {", ".join([marks] * rows)}'  # noqa: S608


@lru_cache(maxsize=MAX_ROWS)
def _adding_rows_sql(rows: int) -> str:
    """Return an INSERT that gives new rows a random negative id: the next highest id costs one more page per batch."""
    marks = f"({RANDOM_ID}, {', '.join('?' * len(counters.COLUMNS))})"
    table, names = CallFigures._meta.db_table, named(("id", *counters.COLUMNS))
    return f'INSERT INTO "{table}" ({names}) VALUES {", ".join([marks] * rows)}{adding_sql()}'  # noqa: S608


def _plain(table: Table, rows: list[Row]) -> list[Any]:
    """Return the values of `rows`, flattened, as Django's SQLite backend stores them."""
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
    """Return a UTC time as Django's SQLite backend stores it, at a tenth of the cost of `str`."""
    return orjson.dumps(moment)[1:-BEYOND_SECONDS].replace(b"T", b" ").decode()


@lru_cache(maxsize=8)
def _special(table: Table) -> tuple[list[int], list[int], list[int]]:
    """Return the positions of ids, times (all in UTC) and flags, which the driver cannot adapt or adapts slowly."""
    model, columns = table
    fields = {field.attname: field for field in model._meta.concrete_fields}
    kinds = [type(_referred(fields[column])) for column in columns]
    return (
        _positions(kinds, models.UUIDField),
        _positions(kinds, models.DateTimeField),
        _positions(kinds, models.BooleanField),
    )


def _referred(field: "models.Field[Any, Any]") -> "models.Field[Any, Any]":
    """Return the field whose values `field` holds: for a foreign key, the referenced key."""
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    return field


def _positions(kinds: list[type], kind: type) -> list[int]:
    return [position for position, found in enumerate(kinds) if found is kind]


def postgres_writer(batch: Batch) -> set[UUID]:
    """Write a batch in one transaction on the psycopg connection, where none is open."""
    connection.ensure_connection()
    raw = connection.connection
    errors = psycopg().errors
    try:
        return _write_to_postgres(batch, raw)
    except (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement):
        # Behind a pooler, a statement may be prepared on another server connection. Nothing was committed.
        stop_preparing(raw)
        return _write_to_postgres(batch, raw)


def _write_to_postgres(batch: Batch, raw: Any) -> set[UUID]:
    statements = PostgresStatements(raw, prepares=True)
    with heads() as chains:
        try:
            late = write(batch, statements, chains)
            statements.commit()
        except BaseException:
            statements.rollback()
            raise
    return late


class PortableStatements:
    """Statements that every database supported by Django can run."""

    def insert(self, table: Table, rows: list[Row]) -> None:
        """Add `rows` to `table`."""
        model, columns = table
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        for column in json_columns(table):
            for values in named:
                values[column] = orjson.loads(values[column])
        model._default_manager.bulk_create([model(**values) for values in named])

    def settle(self, ids: list[UUID], *, only_queued: bool = False) -> set[UUID]:
        """Delete these running calls, or only those still queued, and return the ids of the deleted ones."""
        rows = RunningCall.objects.filter(status=CallStatus.QUEUED) if only_queued else RunningCall.objects.all()
        return {id for id in ids if rows.filter(pk=id).delete()[0]}

    def add(self, rows: list[Row]) -> None:
        """Add the numbers of `rows` to the figures of the same kinds."""
        count = len(counters.KIND_COLUMNS)
        for row in rows:
            kind = dict(zip(counters.KIND_COLUMNS, row, strict=False))
            numbers = dict(zip(counters.NUMBER_COLUMNS, row[count:], strict=True))
            sums = {name: models.F(name) + number for name, number in numbers.items()}
            if not CallFigures.objects.filter(**kind).update(**sums):
                CallFigures.objects.create(**kind, **numbers)

    def flush(self) -> None:
        """Do nothing: every statement has been executed."""


def portable_writer(batch: Batch) -> set[UUID]:
    """Write a batch in one transaction through the ORM."""
    with heads() as chains, transaction.atomic():
        return write(batch, PortableStatements(), chains)


def statements() -> Statements:
    """Return the statements for the configured database, on this thread's connection, in a Django transaction.

    Flush them at the end.
    """
    if connection.vendor == "sqlite":
        return SqliteStatements(connection.connection)
    return PostgresStatements(connection.connection) if connection.vendor == "postgresql" else PortableStatements()


_WRITERS: dict[str, Writer] = {"sqlite": sqlite_writer, "postgresql": postgres_writer}


def writer() -> Writer:
    """Return the best writer for the configured database."""
    return _WRITERS.get(connection.vendor, portable_writer)


def as_stored(payload: Payload) -> Payload:
    """Return the row of `payload`, packed if its texts together exceed COMPRESS_BYTES."""
    if len(payload.arguments) + len(payload.result) <= COMPRESS_BYTES:
        return payload
    packed = pack(payload.arguments, payload.result)
    return payload if packed is None else Payload(payload.call_id, "", "", packed)
