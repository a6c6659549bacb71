"""Writing batches of records, with the cheapest statements of each database."""

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, Protocol, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
import orjson
from django.db import DEFAULT_DB_ALIAS, connection, connections, models

from tools_app.audit.recorder.chain import ChainHeads, heads
from tools_app.audit.recorder.entries import (
    CALL_COLUMNS,
    RUNNING_COLUMNS,
    Answer,
    CallEventEntry,
    CallFinished,
    CallStarted,
    Entry,
    EventRow,
    Payload,
)
from tools_app.audit.stats import counters
from tools_app.core.packing import pack
from tools_app.core.sqlite.base import DatabaseWrapper
from tools_app.models import Call, CallAnswer, CallEvent, CallFigures, CallPayload, CallStatus, RunningCall

Row = Sequence[Any]
Table = tuple[type[models.Model], Sequence[str]]

RUNNING: Table = (RunningCall, RUNNING_COLUMNS)
CALLS: Table = (Call, CALL_COLUMNS)
PAYLOADS: Table = (CallPayload, Payload._fields)
ANSWERS: Table = (CallAnswer, Answer._fields)
EVENTS: Table = (CallEvent, EventRow._fields)
FIGURES: Table = (CallFigures, counters.COLUMNS)
# Rows per INSERT on SQLite: well below its limit of 32,766 variables, and few enough statements to stay prepared.
MAX_ROWS = 32
# Arguments and result of a call that exceed this together are stored compressed.
COMPRESS_BYTES = 4096

# On PostgreSQL, the prepared statements of each connection, by name; None behind a pooler that does not support them.
_prepared: WeakKeyDictionary[Any, set[bytes] | None] = WeakKeyDictionary()


@cache
def adding_sql() -> str:
    """Return the clause that makes an INSERT of figures add to existing rows."""
    table = CallFigures._meta.db_table
    sums = ", ".join(f'"{name}" = "{table}"."{name}" + excluded."{name}"' for name in counters.NUMBER_COLUMNS)
    return f" ON CONFLICT ({named(counters.KIND_COLUMNS)}) DO UPDATE SET {sums}"


def and_queued(only_queued: bool) -> str:
    """Return the condition that limits running calls to those still queued."""
    return f""" AND "status" = '{CallStatus.QUEUED.value}'""" if only_queued else ""


def named(columns: Iterable[str]) -> str:
    """Return quoted names of columns, separated by commas."""
    return ", ".join(f'"{column}"' for column in columns)


@lru_cache(maxsize=8)
def json_columns(table: Table) -> list[str]:
    """Return the columns whose values are already JSON."""
    model, _ = table
    return [field.attname for field in model._meta.concrete_fields if isinstance(field, models.JSONField)]


class Statements(Protocol):
    """The statements that differ between databases. All are called inside one transaction."""

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Add `rows` to `table`, or their numbers to FIGURES of the same kinds."""

    def settle(self, ids: list[UUID], *, only_queued: bool = False) -> set[UUID]:
        """Delete these running calls, or only those still queued, and return the ids of the deleted ones."""

    def flush(self) -> None:
        """Send what is not sent yet, so that this connection can read it. The end of the transaction does so too."""


def insert_rows(entries: Sequence[Entry], statements: Statements, chains: ChainHeads) -> set[UUID]:
    """Insert the rows of a batch, linked to `chains`, and return the ids of calls that were already settled."""
    started = [entry for entry in entries if isinstance(entry, CallStarted)]
    events = [entry for entry in entries if isinstance(entry, CallEventEntry)]
    finished = [entry for entry in entries if isinstance(entry, CallFinished)]
    whole: set[UUID] = set()
    if started and finished:
        # A call that starts and ends in one batch needs no intent.
        whole = {entry.call_id for entry in started} & {entry.call_id for entry in finished}
        started = [entry for entry in started if entry.call_id not in whole]
    late: set[UUID] = set()
    for only_queued in (False, True):
        settling = [
            entry.call_id
            for entry in finished
            if entry.settles and entry.only_queued == only_queued and entry.call_id not in whole
        ]
        if settling:
            late |= set(settling) - statements.settle(settling, only_queued=only_queued)
    if late:
        finished = [entry for entry in finished if entry.call_id not in late]
    if started:
        statements.insert(RUNNING, [entry.facts + entry.row for entry in started])
    if events:
        statements.insert(EVENTS, [entry.row for entry in events])
        chains.events.note(entry.row for entry in events)
    if finished:
        if events and not all(chains.events.has(entry.call_id, entry.row.event_count) for entry in finished):
            # The digest of its events is part of a call's hash: where it is not known, `link` reads them.
            statements.flush()
        statements.insert(CALLS, chains.link(finished))
        payloads = [entry.payload for entry in finished]
        statements.insert(
            PAYLOADS,
            [row if len(row.arguments) + len(row.result) <= COMPRESS_BYTES else _packed(row) for row in payloads],
        )
        answers = [entry.answer for entry in finished if entry.answer is not None]
        if answers:
            statements.insert(ANSWERS, answers)
        statements.insert(FIGURES, counters.rows_of(finished))
    return late


def _packed(payload: Payload) -> Payload:
    """Return the row of long texts, unless they are too long to be packed."""
    packed = pack(payload.arguments, payload.result)
    return payload if packed is None else Payload(payload.call_id, "", "", packed)


class SqliteStatements(msgspec.Struct):
    """Multi-row INSERTs on the driver's connection, without the ORM and with cached SQL.

    Not `executemany`: the driver lets other threads run between rows, and with a busy event loop the recorder waits at
    each row.
    """

    raw: Any

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Add `rows` to `table`, or their numbers to FIGURES of the same kinds."""
        special = _special(table)
        for start in range(0, len(rows), MAX_ROWS):
            part = rows[start : start + MAX_ROWS]
            # The values of the rows, one row after the other, as Django's SQLite backend stores them.
            values: list[Any] = []
            for row in part:
                begin = len(values)
                values += row
                for column, kind in special:
                    value = values[begin + column]
                    if value is None:
                        continue
                    if kind is models.UUIDField:
                        values[begin + column] = value.hex
                    elif kind is models.DateTimeField:
                        # Times are in UTC, and `isoformat` is slower.
                        text = orjson.dumps(value)[1 : -len('+00:00"')]
                        values[begin + column] = text.replace(b"T", b" ").decode()
                    else:
                        values[begin + column] = int(value)
            self.raw.execute(_insert_sql(table, len(part)), values)

    def settle(self, ids: list[UUID], *, only_queued: bool = False) -> set[UUID]:
        """Delete these running calls, or only those still queued, and return the ids of the deleted ones."""
        sql = f'DELETE FROM "{RunningCall._meta.db_table}" WHERE "id" = ?{and_queued(only_queued)}'  # noqa: S608
        return {id for id in ids if self.raw.execute(sql, (id.hex,)).rowcount}

    def flush(self) -> None:
        """Do nothing: every statement has been executed."""


@lru_cache(maxsize=MAX_ROWS * 6)
def _insert_sql(table: Table, rows: int) -> str:
    model, columns = table
    names, values, adding = named(columns), ", ".join("?" * len(columns)), ""
    if table is FIGURES:
        # New rows get a random negative id: the next highest id costs one more page per batch.
        names, values, adding = f'"id", {names}', f"-abs(random() >> 1) - 1, {values}", adding_sql()
    marks = ", ".join([f"({values})"] * rows)
    return f'INSERT INTO "{model._meta.db_table}" ({names}) VALUES {marks}{adding}'  # noqa: S608


@lru_cache(maxsize=8)
def _special(table: Table) -> list[tuple[int, type]]:
    """Return the positions and kinds of ids, times and flags, which the driver cannot adapt or adapts slowly."""
    model, columns = table
    special = []
    for position, column in enumerate(columns):
        field: Any = next(field for field in model._meta.concrete_fields if field.attname == column)
        while isinstance(field, models.ForeignKey):
            field = field.target_field
        kinds = (models.UUIDField, models.DateTimeField, models.BooleanField)
        special += [(position, kind) for kind in kinds if type(field) is kind]
    return special


class PostgresStatements(msgspec.Struct):
    """One statement for all rows of a batch, with one JSON parameter for each table.

    A round trip is expensive even where the server is near, because the recorder's thread then waits for the
    interpreter. JSON takes half the time of COPY in this process. Batches of up to 200 calls are also durable sooner;
    with 500, it takes a tenth longer. `prepares`: the statement is planned once for each connection.
    """

    raw: Any
    prepares: bool = False
    collected: dict[Table, bytes] = {}

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Add `rows` to `table`, or their numbers to FIGURES, when they are flushed."""
        _, columns = table
        named_rows = [dict(zip(columns, row, strict=True)) for row in rows]
        for column in json_columns(table):
            for values in named_rows:
                values[column] = orjson.Fragment(values[column])
        if table is FIGURES:
            # Most numbers are zero.
            named_rows = [{name: value for name, value in row.items() if value != 0} for row in named_rows]
        # PostgreSQL reads it with the types of the columns.
        self.collected[table] = orjson.dumps(named_rows, default=lambda value: f"\\x{value.hex()}")

    def settle(self, ids: list[UUID], *, only_queued: bool = False) -> set[UUID]:
        """Delete these running calls, or only those still queued, and return the ids of the deleted ones."""
        texts = ",".join([id.hex for id in ids])
        condition = f"WHERE \"id\" = ANY('{{{texts}}}'::uuid[]){and_queued(only_queued)}"
        sql = f'{self._begin()}DELETE FROM "{RunningCall._meta.db_table}" {condition} RETURNING "id"'  # noqa: S608
        deleted = self._checked(self.raw.pgconn.exec_(sql.encode()))
        return {UUID(deleted.get_value(row, 0).decode()) for row in range(deleted.ntuples)}

    def flush(self) -> None:
        """Send the collected rows, so that this connection can read them before they are committed."""
        if begin := self._begin():
            self._checked(self.raw.pgconn.exec_(begin.encode()))
        self._send()

    def commit(self) -> None:
        """Send the collected rows and commit: without a transaction so far, in one round trip."""
        is_begun = not self._is_idle()
        self._send()
        if is_begun:
            self._checked(self.raw.pgconn.exec_(b"COMMIT"))

    def rollback(self) -> None:
        """Undo what was not committed. On a lost connection, the server does it."""
        status = _psycopg().pq.TransactionStatus
        if self.raw.pgconn.transaction_status in (status.INTRANS, status.INERROR):
            self.raw.pgconn.exec_(b"ROLLBACK")

    def _send(self) -> None:
        if not self.collected:
            return
        sql, values = _inserting_sql(tuple(self.collected)), list(self.collected.values())
        self.collected = {}
        known = _prepared.setdefault(self.raw, set()) if self.prepares else None
        if known is None:
            self._checked(self.raw.pgconn.exec_params(sql, values))
            return
        # Named after its text: a server connection that a pooler shares never runs another statement instead.
        name = b"mcphub_" + sha256(sql).hexdigest()[:32].encode()
        if name not in known:
            self._checked(self.raw.pgconn.prepare(name, sql))
            known.add(name)
        self._checked(self.raw.pgconn.exec_prepared(name, values))

    def _begin(self) -> str:
        """Return the statement that begins a transaction, if there is none."""
        return "BEGIN; " if self._is_idle() else ""

    def _is_idle(self) -> bool:
        return bool(self.raw.pgconn.transaction_status == _psycopg().pq.TransactionStatus.IDLE)

    def _checked(self, result: Any) -> Any:
        """Return a result without an error. Raises what psycopg raises for it."""
        pq, errors = _psycopg().pq, _psycopg().errors
        if result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            return result
        encoding = self.raw.info.encoding
        if self.raw.pgconn.status == pq.ConnStatus.BAD:
            raise errors.OperationalError(result.get_error_message(encoding))
        raise errors.error_from_result(result, encoding)


def _psycopg() -> Any:
    """Return the driver, which is installed where PostgreSQL is used."""
    return cast("Any", connection).Database


@lru_cache(maxsize=32)
def _inserting_sql(tables: tuple[Table, ...]) -> bytes:
    """Return one statement that fills `tables`, each from the JSON parameter at its place."""
    *parts, last = [_insert_json_sql(table, number) for number, table in enumerate(tables, 1)]
    before = ", ".join(f"part_{number} AS ({part})" for number, part in enumerate(parts))
    return (f"WITH {before} {last}" if before else last).encode()


def _insert_json_sql(table: Table, number: int) -> str:
    """Return an INSERT with one JSON parameter for any number of rows: sending hundreds of parameters is expensive."""
    model, columns = table
    name, values, adding = model._meta.db_table, named(columns), ""
    if table is FIGURES:
        numbers = ", ".join(f'coalesce("{column}", 0)' for column in counters.NUMBER_COLUMNS)
        values, adding = f"{named(counters.KIND_COLUMNS)}, {numbers}", adding_sql()
    rows = f'SELECT {values} FROM json_populate_recordset(NULL::"{name}", ${number}::json)'  # noqa: S608
    return f'INSERT INTO "{name}" ({named(columns)}) {rows}{adding}'


def write(entries: Sequence[Entry]) -> set[UUID]:
    """Write a batch in one transaction of this thread's connection, where none is open; it is durable on return.

    Return the ids of calls that were already settled elsewhere, for which nothing is written.
    """
    connection.ensure_connection()
    raw = connection.connection
    if connection.vendor == "postgresql":
        errors = _psycopg().errors
        try:
            return _write_to_postgres(entries, raw)
        except (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement):
            # Behind a pooler, a statement may be prepared on another server connection. Nothing was committed.
            _prepared[raw] = None
            return _write_to_postgres(entries, raw)
    # Answers wait for this batch: it goes before the writes of other threads.
    wrapper = cast("DatabaseWrapper", connections[DEFAULT_DB_ALIAS])
    with heads().transaction() as chains, wrapper.write_lock(first=True):
        # Durable on COMMIT, given `PRAGMA synchronous=FULL`.
        raw.execute("BEGIN IMMEDIATE")
        try:
            late = insert_rows(entries, SqliteStatements(raw), chains)
        except BaseException:
            raw.execute("ROLLBACK")
            raise
        raw.execute("COMMIT")
    return late


def _write_to_postgres(entries: Sequence[Entry], raw: Any) -> set[UUID]:
    statements = PostgresStatements(raw, prepares=True)
    with heads().transaction() as chains:
        try:
            late = insert_rows(entries, statements, chains)
            statements.commit()
        except BaseException:
            statements.rollback()
            raise
    return late


def statements() -> Statements:
    """Return the statements for the configured database, on this thread's connection, in a Django transaction.

    Flush them at the end.
    """
    raw = connection.connection
    return PostgresStatements(raw) if connection.vendor == "postgresql" else SqliteStatements(raw)
