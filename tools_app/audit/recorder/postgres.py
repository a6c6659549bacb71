"""Statements for PostgreSQL: the rows of a batch in one prepared statement."""

from functools import lru_cache
from hashlib import sha256
from typing import Any, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
import orjson
from django.db import connection

from tools_app.audit.recorder.tables import FIGURES, Row, Table, adding_sql, and_queued, json_columns, named
from tools_app.audit.stats import counters
from tools_app.models import RunningCall

# The prepared statements of each psycopg connection, by name; None behind a pooler that does not support them.
_prepared: WeakKeyDictionary[Any, set[bytes] | None] = WeakKeyDictionary()


class PostgresStatements(msgspec.Struct):
    """One statement for all rows of a batch, with one JSON parameter for each table.

    A round trip is expensive even where the server is near, because the recorder's thread then waits for the
    interpreter. JSON takes half the time of COPY in this process. Batches of up to 200 calls are also durable sooner;
    with 500, it takes a tenth longer. `prepares`: the statement is planned once for each connection.
    """

    raw: Any
    prepares: bool = False
    collected: dict[Table, bytes] = {}

    def insert(self, table: Table, rows: list[Row]) -> None:
        """Add `rows` to `table`, when they are flushed."""
        self.collected[table] = _as_json(table, rows)

    def add(self, rows: list[Row]) -> None:
        """Add the numbers of `rows` to the figures of the same kinds, when they are flushed."""
        self.collected[FIGURES] = orjson.dumps([_numbers_only(row) for row in rows])

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
        status = psycopg().pq.TransactionStatus
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
        return bool(self.raw.pgconn.transaction_status == psycopg().pq.TransactionStatus.IDLE)

    def _checked(self, result: Any) -> Any:
        """Return a result without an error. Raises what psycopg raises for it."""
        pq, errors = psycopg().pq, psycopg().errors
        if result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            return result
        encoding = self.raw.info.encoding
        if self.raw.pgconn.status == pq.ConnStatus.BAD:
            raise errors.OperationalError(result.get_error_message(encoding))
        raise errors.error_from_result(result, encoding)


def stop_preparing(raw: Any) -> None:
    """Do without prepared statements on this connection."""
    _prepared[raw] = None


def psycopg() -> Any:
    """Return the driver, which is installed where PostgreSQL is used."""
    return cast("Any", connection).Database


def _as_json(table: Table, rows: list[Row]) -> bytes:
    """Return `rows` as a JSON array of objects, which PostgreSQL reads with the types of the columns."""
    _, columns = table
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    for column in json_columns(table):
        for values in named:
            values[column] = orjson.Fragment(values[column])
    return orjson.dumps(named, default=_as_bytea)


def _as_bytea(value: bytes) -> str:
    """Return a binary value as PostgreSQL's text."""
    return f"\\x{value.hex()}"


def _numbers_only(row: Row) -> dict[str, Any]:
    """Return a row of figures by column, without the zeros, which are most of it."""
    return {name: value for name, value in zip(counters.COLUMNS, row, strict=True) if value != 0}


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
