"""Records as stored, in the order of their chains and with all that their hashes cover.

A quick check reads the newest records, found by their time-ordered ids. They may have gaps within a chain: a call that
took long started before its neighbours. Missing records are searched for among calls that started somewhat earlier.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby, islice, pairwise
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.checkpoints.signer import calls_from
from tools_app.audit.recorder.chain import covered, digest, event_digests
from tools_app.audit.recorder.entries import HASHED
from tools_app.core.packing import UnpackError, texts
from tools_app.models import Call, CallPayload

T = TypeVar("T")

FETCH_SIZE = 2000
BATCH = 200
# In the row of a record, after its version.
ID, EVENT_COUNT = HASHED.index("id") + 1, HASHED.index("event_count") + 1


class ChainEntry(NamedTuple):
    """The place of a record in its chain, as the record states it."""

    writer: UUID
    tenant_id: UUID | None
    position: int
    call_id: UUID
    hash: bytes
    finished_at: datetime


@dataclass(frozen=True)
class Record:
    """A stored record: `row` has what its hash covers of its columns, None if that cannot be said.

    `version` is that of its hash, as it states it. `texts` is None if its payload is missing or cannot be read.
    """

    version: int | None
    row: tuple[Any, ...] | None
    events: str | None
    texts: tuple[str, str] | None

    def fits(self, before: bytes, *hashes: bytes) -> bool:
        """Return whether one of `hashes` is its hash after the hash `before`."""
        if self.row is None or self.texts is None:
            return False
        return digest(before, self.row, self.events, *self.texts) in hashes


class Batch:
    """Entries that are processed together. Their records are loaded on first access."""

    def __init__(self, entries: list[ChainEntry]) -> None:
        self.entries = entries

    @cached_property
    def records(self) -> dict[UUID, Record]:
        """The records by id."""
        ids = [entry.call_id for entry in self.entries]
        calls = Call.objects.filter(pk__in=ids).values_list("hash_version", *HASHED)
        rows = {row[ID]: row for row in calls}
        payloads = CallPayload.objects.filter(pk__in=ids).values_list("call_id", "arguments", "result", "packed")
        read: dict[UUID, tuple[str, str]] = {}
        for call_id, arguments, result, packed in payloads:
            # Beside packed texts, there are no others.
            if packed is None or not (arguments or result):
                with suppress(UnpackError):
                    read[call_id] = texts(arguments, result, packed)
        events = event_digests({call_id: row[EVENT_COUNT] for call_id, row in rows.items()})
        return {
            call_id: Record(row[0], covered(row), events.get(call_id), read.get(call_id))
            for call_id, row in rows.items()
        }


@contextmanager
def snapshot() -> Iterator[None]:
    """See the database as it is now, regardless of later writes. On SQLite without blocking other writers."""
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


def calls_of_chain(writer: UUID, tenant_id: UUID | None) -> QuerySet[Call]:
    """Return the records of one chain."""
    calls = Call.objects.filter(writer=writer)
    return calls.filter(tenant__isnull=True) if tenant_id is None else calls.filter(tenant_id=tenant_id)


def chain_entries(calls: QuerySet[Call]) -> Iterator[ChainEntry]:
    """Stream the chain entries of those `calls` that are in chains, chain by chain."""
    chained = calls.exclude(chain_position=None).order_by("writer", "tenant_id", "chain_position", "id")
    columns = chained.values_list("writer", "tenant_id", "chain_position", "id", "chain_hash", "finished_at")
    for writer, tenant_id, position, call_id, chain_hash, finished_at in columns.iterator(FETCH_SIZE):
        yield ChainEntry(writer, tenant_id, position or 0, call_id, bytes(chain_hash or b""), finished_at)


def batches(entries: Iterable[ChainEntry]) -> Iterator[tuple[ChainEntry, Batch]]:
    """Yield each entry with its batch."""
    for some in in_batches(entries, BATCH):
        batch = Batch(some)
        for entry in some:
            yield entry, batch


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size`, in order."""
    source = iter(items)
    while some := list(islice(source, size)):
        yield some


# A chain with more gaps than this is broken in any case.
MAX_HOLES = 2000


class Newest:
    """The newest `count` of `calls`, which are all or those of one tenant. `since`: when the first of them started."""

    def __init__(self, calls: QuerySet[Call], count: int, *, of_one_tenant: bool) -> None:
        # By the available index: one starts with the tenant, and ids are ordered by time.
        newest = calls.order_by("-started_at" if of_one_tenant else "-id").only("started_at")
        first = newest[count - 1 : count].first() or newest.last()
        self.since = first.started_at if first else timezone.now()
        if of_one_tenant or first is None:
            self.calls = calls.filter(started_at__gte=self.since)
        else:
            self.calls = calls.filter(id__gte=first.pk)

    def entries(self) -> list[ChainEntry]:
        """Return their entries, and those of the records between them."""
        found = list(chain_entries(self.calls))
        # Positions that are missing between others of their chain.
        holes = (
            (*chain, position)
            for chain, entries in groupby(found, key=lambda entry: entry[:2])
            for one, next_one in pairwise(entries)
            for position in range(one.position + 1, next_one.position)
        )
        missing = set(islice(holes, MAX_HOLES))
        if not missing:
            return found
        entries = [*found, *self._earlier(missing)]
        return sorted(entries, key=lambda entry: (entry.writer, str(entry.tenant_id), entry.position, entry.call_id))

    def _earlier(self, missing: set[tuple[UUID, UUID | None, int]]) -> Iterator[ChainEntry]:
        earlier = calls_from(self.since).filter(
            writer__in={writer for writer, _, _ in missing},
            chain_position__in={position for _, _, position in missing},
        )
        for entry in chain_entries(earlier):
            if entry[:3] in missing:
                missing.discard(entry[:3])
                yield entry
