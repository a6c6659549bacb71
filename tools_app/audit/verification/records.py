"""Records as the database has them now, in the order of their chains and with all that their hashes cover."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from tools_app.audit.chain import digest, event_digests
from tools_app.audit.rows import RECORD_COLUMNS
from tools_app.models import Call, CallPayload
from tools_app.models.packing import NotPacked, unpack

T = TypeVar("T")

PLACES = 2000
BATCH = 200
EVENT_COUNT = RECORD_COLUMNS.index("event_count")


class Place(NamedTuple):
    """Where a record says that it stands."""

    writer: UUID
    tenant_id: UUID | None
    position: int
    call_id: UUID
    hash: bytes
    finished_at: datetime


@dataclass(frozen=True)
class Record:
    """What the hash of a record covers. `texts` are None where its payload is gone or cannot be read."""

    row: tuple[Any, ...]
    events: str | None
    texts: tuple[str, str] | None

    def digest(self, before: bytes) -> bytes | None:
        """Its hash if it follows the hash `before`; None if it cannot be made."""
        return digest(before, self.row, self.events, *self.texts) if self.texts is not None else None


class Batch:
    """Places that are looked at together. Their records are loaded when the first of them is asked for."""

    def __init__(self, places: list[Place]) -> None:
        self.places = places

    @cached_property
    def records(self) -> dict[UUID, Record]:
        """The records by their ids."""
        ids = [place.call_id for place in self.places]
        rows = {row[0]: row for row in Call.objects.filter(pk__in=ids).values_list(*RECORD_COLUMNS)}
        payloads = CallPayload.objects.filter(pk__in=ids).values_list("call_id", "arguments", "result", "packed")
        texts = {call_id: _texts(arguments, result, packed) for call_id, arguments, result, packed in payloads}
        events = event_digests({call_id: row[EVENT_COUNT] for call_id, row in rows.items()})
        return {call_id: Record(row, events.get(call_id), texts.get(call_id)) for call_id, row in rows.items()}


@contextmanager
def snapshot() -> Iterator[None]:
    """See the database as it is now, whatever is written meanwhile. On SQLite without keeping others from writing."""
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
    else:
        with transaction.atomic(), connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield


def places_of(calls: QuerySet[Call]) -> Iterator[Place]:
    """Where those of `calls` stand that are in chains, chain by chain. Streams."""
    chained = calls.exclude(chain_position=None).order_by("writer", "tenant_id", "chain_position", "id")
    columns = chained.values_list("writer", "tenant_id", "chain_position", "id", "chain_hash", "finished_at")
    for writer, tenant_id, position, call_id, chain_hash, finished_at in columns.iterator(PLACES):
        yield Place(writer, tenant_id, position or 0, call_id, bytes(chain_hash or b""), finished_at)


def batches(places: Iterable[Place]) -> Iterator[tuple[Place, Batch]]:
    """Each place with the batch that it is in."""
    for some in in_batches(places, BATCH):
        batch = Batch(some)
        for place in some:
            yield place, batch


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of at most `size`, in order."""
    source = iter(items)
    while some := list(islice(source, size)):
        yield some


def _texts(arguments: str, result: str, packed: bytes | memoryview | None) -> tuple[str, str] | None:
    if packed is None:
        return arguments, result
    if arguments or result:
        return None
    try:
        return unpack(bytes(packed))
    except NotPacked:
        return None
