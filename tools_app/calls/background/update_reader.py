"""Reading of calls' updates from the database, in one go for all that follow calls on an event loop.

As the recorder groups writes, what is asked for while a read is under way is read next, together: three statements for
any number of calls, on the driver's connection, without the ORM.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

import orjson
from django.db import connection

from tools_app.calls.events import CallUpdate, answer_purpose, whole_event
from tools_app.core import encryption
from tools_app.core.batches import AsyncBatches
from tools_app.core.database import run_in_db_thread
from tools_app.models import Call, CallAnswer, CallEvent, CallStatus, RunningCall

# Events of one read.
MAX_EVENTS = 2000
CALLS, ANSWERS, EVENTS, RUNNING = (model._meta.db_table for model in (Call, CallAnswer, CallEvent, RunningCall))
# What comes before the tables: the wanted ids, and in EVENTS_SQL the sequences after which events are wanted. On
# PostgreSQL they are arrays, on SQLite JSON; CROSS JOIN makes SQLite begin with them.
WANTED: Final = {
    "postgresql": ("unnest(%s::uuid[]) AS w(id) JOIN", "unnest(%s::uuid[], %s::int[]) AS w(id, after) JOIN"),
    "sqlite": (
        "(SELECT value AS id FROM json_each(?)) AS w CROSS JOIN",
        "(SELECT value ->> 0 AS id, value ->> 1 AS after FROM json_each(?)) AS w CROSS JOIN",
    ),
}
ENDS_SQL: Final = (
    'SELECT c."id", c."outcome", a."sealed" FROM {wanted} "{calls}" AS c ON c."id" = w.id '
    'LEFT JOIN "{answers}" AS a ON a."call_id" = c."id"'
)
EVENTS_SQL: Final = (
    'SELECT e."call_id", e."sequence", e."kind", e."data" FROM {wanted} "{events}" AS e '
    'ON e."call_id" = w.id AND e."sequence" > w.after ORDER BY e."call_id", e."sequence" LIMIT {limit}'
)
RUNNING_SQL: Final = 'SELECT r."id", r."status", r."asked" FROM {wanted} "{running}" AS r ON r."id" = w.id'


class Position(NamedTuple):
    """A call whose events after sequence `after`, and whose end, are read."""

    call_id: UUID
    after: int


def _read_all(wanted: list[Position]) -> "Awaitable[list[CallUpdate | Exception]]":
    return run_in_db_thread(read_updates, wanted)


_readers: "WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncBatches[Position, CallUpdate]]" = WeakKeyDictionary()


async def read(call_id: UUID, after: int) -> CallUpdate:
    """Return the update of a call since event `after`, read together with others of this event loop.

    Raises the database's errors, and encryption.DecryptionError if its answer was sealed with another key.
    """
    loop = asyncio.get_running_loop()
    reader = _readers.get(loop)
    if reader is None:
        reader = _readers[loop] = AsyncBatches(_read_all, sys.maxsize)
    return await reader.submit(Position(call_id, after))


def read_updates(wanted: Sequence[Position]) -> list[CallUpdate | Exception]:
    """Return the update of each wanted call, or the error if its events or its answer cannot be decrypted.

    Ends are read first: events are written before them, so none is missing once the end is visible.
    """
    statements = _Statements()
    ids = list({one.call_id for one in wanted})
    ends = statements.ends(ids)
    events, incomplete = statements.events(wanted)
    silent = [id for id in ids if id not in ends and id not in events]
    running = statements.running([id for id in ids if id not in ends])
    # A call that was settled meanwhile is in neither table when each is read.
    settled = statements.ends([id for id in silent if id not in running])
    updates: list[CallUpdate | Exception] = []
    for call_id, after in wanted:
        try:
            found = [whole_event(call_id, *row) for row in events.get(call_id, ()) if row[0] > after]
            if call_id in incomplete:
                updates.append(CallUpdate(found, None, True, None, is_partial=True))
            elif call_id in ends:
                outcome, sealed = ends[call_id]
                answer = None if sealed is None else encryption.unseal(bytes(sealed), answer_purpose(call_id))
                updates.append(CallUpdate(found, outcome, True, answer))
            else:
                known = bool(found) or call_id in running or call_id in settled
                waits = running.get(call_id, False)
                updates.append(CallUpdate(found, None, known, None, is_awaiting_input=waits))
        except encryption.DecryptionError as problem:
            updates.append(problem)
    return updates


class _Statements:
    """The statements, on this thread's connection."""

    def __init__(self) -> None:
        connection.ensure_connection()
        self._raw: Any = connection.connection
        self._is_postgres = connection.vendor == "postgresql"
        self._ids_sql, self._pairs_sql = WANTED[connection.vendor]

    def ends(self, ids: Sequence[UUID]) -> dict[UUID, tuple[str, bytes | None]]:
        """Return the outcome and the encrypted answer of each call that has ended."""
        sql = ENDS_SQL.format(wanted=self._ids_sql, calls=CALLS, answers=ANSWERS)
        return {self._id(id): (outcome, sealed) for id, outcome, sealed in self._rows(sql, ids)}

    def events(self, wanted: Sequence[Position]) -> tuple[dict[UUID, list[tuple[int, str, str]]], set[UUID]]:
        """Return sequence, kind and data of events by call, and the calls of which not all could be read."""
        after: dict[UUID, int] = {}
        for one in wanted:
            after[one.call_id] = min(one.after, after.get(one.call_id, one.after))
        sql = EVENTS_SQL.format(wanted=self._pairs_sql, events=EVENTS, limit=MAX_EVENTS)
        rows = self._rows(sql, list(after), list(after.values()))
        events: defaultdict[UUID, list[tuple[int, str, str]]] = defaultdict(list)
        for id, *event in rows:
            events[self._id(id)].append(tuple(event))
        if len(rows) < MAX_EVENTS:
            return events, set()
        last = self._id(rows[-1][0])
        return events, {id for id in after if id.bytes >= last.bytes}

    def running(self, ids: Sequence[UUID]) -> dict[UUID, bool]:
        """Return which calls have not ended, and whether each is a task that waits for its client."""
        sql = RUNNING_SQL.format(wanted=self._ids_sql, running=RUNNING)
        return {
            self._id(id): status == CallStatus.WAITING and questions not in ({}, "{}")
            for id, status, questions in self._rows(sql, ids)
        }

    def _rows(self, sql: str, ids: Sequence[UUID], after: Sequence[int] | None = None) -> list[Any]:
        if not ids:
            return []
        if self._is_postgres:
            parameters: list[Any] = [list(ids)] if after is None else [list(ids), list(after)]
        elif after is None:
            parameters = [orjson.dumps([id.hex for id in ids]).decode()]
        else:
            parameters = [orjson.dumps([[id.hex, last] for id, last in zip(ids, after, strict=True)]).decode()]
        with connection.wrap_database_errors:
            rows: list[Any] = self._raw.execute(sql, parameters).fetchall()
        return rows

    def _id(self, value: Any) -> UUID:
        return value if self._is_postgres else UUID(hex=value)
