"""Hash chains of records.

Each terminal record carries the SHA-256 of the previous record's hash and its own contents. There is a chain for each
process and tenant, so no process waits for another's hash. The heads are in memory: a new process starts new chains.
Verification recomputes the same bytes from the stored rows.

A record stores the version of its hash (`hash_version`), because it is verified by the rules of that version for as
long as it is kept: `entries.ADDED` says which columns a version covers.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple, Self
from uuid import UUID

import orjson

from tools_app.audit.recorder.entries import ADDED, HASH_VERSION, HASHED, CallFinished, EventRow, Link
from tools_app.core.process.runtime import Service
from tools_app.models import Call, CallEvent

START = b"mcphub audit chain v1\n"
MANY_EVENTS = 2000
# Calls whose events are hashed as they are written.
MAX_CALLS = 10_000
MICROSECOND = timedelta(microseconds=1)

Chain = tuple[UUID, UUID | None]


class UncertainCommit(NamedTuple):
    """A batch whose commit is uncertain: one of its calls, and the chain heads if it was committed."""

    call_id: UUID
    heads: dict[Chain, Link]


def start_of(writer: UUID, tenant_id: UUID | None) -> Link:
    """Return the link that the first record of a chain follows."""
    return Link(0, sha256(START + writer.bytes + (tenant_id.bytes if tenant_id else b"")).digest())


def digest(before: bytes, row: tuple[Any, ...], events: str | None, arguments: str, result: str) -> bytes:
    """Return the hash of a record that follows the hash `before`.

    `row` has the version and the columns that it covers, `events` is the digest of the call's events. The JSON is
    self-delimiting and contains the lengths of the texts after it, so no two records produce the same bytes.
    """
    head, tail = arguments.encode(), result.encode()
    fixed = orjson.dumps((*row, events, len(head), len(tail)))
    return sha256(b"".join((before, fixed, head, tail))).digest()


def covered(stored: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the row for `digest` of a stored record: its version and the columns of HASHED.

    None if this hub does not know the version, or if a column that a later version added has a value.
    """
    version, *values = stored
    if version not in range(1, HASH_VERSION + 1):
        return None
    later = {column for added, columns in ADDED.items() if added > version for column in columns}
    if any(value is not None for column, value in zip(HASHED, values, strict=True) if column in later):
        return None
    return version, *(value for column, value in zip(HASHED, values, strict=True) if column not in later)


def hashed_event(sequence: int, at: datetime, kind: str, data: str) -> bytes:
    """Return an event as its call's digest covers it."""
    text = data.encode()
    return orjson.dumps((sequence, at, kind, len(text))) + text


def event_digests(counts: Mapping[UUID, int]) -> dict[UUID, str]:
    """Return the digest of the stored events of each call with events, up to as many as it counted."""
    hashes = {call_id: sha256() for call_id, count in counts.items() if count}
    if hashes:
        events = CallEvent.objects.filter(call_id__in=hashes).order_by("call_id", "sequence")
        columns = events.values_list("call_id", "sequence", "at", "kind", "data")
        # A server-side cursor pays off for many rows only.
        rows = columns.iterator() if sum(counts.values()) > MANY_EVENTS else columns
        for call_id, sequence, at, kind, data in rows:
            if sequence <= counts[call_id]:
                hashes[call_id].update(hashed_event(sequence, at, kind, data))
    return {call_id: running_hash.hexdigest() for call_id, running_hash in hashes.items()}


class EventHashes:
    """The hashes of the events so far of calls that run in this process, so that the end of a call reads none of them.

    A call with more events than were noted here, in order, is not known. At most MAX_CALLS are: the oldest is dropped.
    """

    def __init__(self) -> None:
        self._hashes: OrderedDict[UUID, tuple[int, Any]] = OrderedDict()

    def note(self, events: Iterable[EventRow]) -> None:
        """Note events that are written in this transaction."""
        for call_id, sequence, at, kind, data in events:
            count, running_hash = self._hashes.pop(call_id, (0, None)) if sequence > 1 else (0, sha256())
            if running_hash is not None and count == sequence - 1:
                running_hash.update(hashed_event(sequence, at, kind, data))
                self._hashes[call_id] = (sequence, running_hash)
        while len(self._hashes) > MAX_CALLS:
            self._hashes.popitem(last=False)

    def has(self, call_id: UUID, count: int) -> bool:
        """Return whether the digest of so many events of a call is known."""
        return not count or self._hashes.get(call_id, (0, None))[0] == count

    def take(self, counts: Mapping[UUID, int]) -> dict[UUID, str]:
        """Return and forget the digests of these calls, as `event_digests`; those that are not known are missing."""
        found = {call_id: self._hashes.pop(call_id, (0, None)) for call_id in counts}
        return {
            call_id: running_hash.hexdigest()
            for call_id, (count, running_hash) in found.items()
            if running_hash is not None and count == counts[call_id]
        }

    def clear(self) -> None:
        """Forget all calls, because a transaction failed."""
        self._hashes.clear()


class ChainHeads:
    """The last record of each chain of this process. The heads advance only on commit.

    `events` are the hashes of events.
    """

    def __init__(self) -> None:
        self.events = EventHashes()
        self._one_by_one = Lock()
        self._heads: dict[Chain, Link] = {}
        self._staged: dict[Chain, Link] = {}
        self._first: UUID | None = None
        self._uncertain: UncertainCommit | None = None

    def now(self) -> dict[Chain, Link]:
        """Return the committed head of each chain."""
        return dict(self._heads)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Surround the transaction of a batch: the links that `link` returns in it take effect if it is committed."""
        with self._one_by_one:
            self._staged, self._first = {}, None
            try:
                yield self
            except BaseException:
                self.events.clear()
                if self._first is not None:
                    self._uncertain = UncertainCommit(self._first, self._staged)
                raise
            self._heads.update(self._staged)

    def link(self, endings: list[CallFinished]) -> list[Sequence[Any]]:
        """Return the rows of finished calls, linked to their chains. Call it after their events are written."""
        if not endings:
            return []
        if self._uncertain is not None:
            self._settle()
        self._first = endings[0].facts.id
        counts = {entry.facts.id: entry.row.event_count for entry in endings if entry.row.event_count}
        events: dict[UUID, str] = {}
        if counts:
            events = self.events.take(counts)
            events |= event_digests({call_id: count for call_id, count in counts.items() if call_id not in events})
        # On the hot path. A look-up by two ids costs as much as a hash: one is enough.
        reached: dict[Chain, list[Any]] = {}
        rows: list[Sequence[Any]] = []
        now = datetime.now(UTC)
        for entry in endings:
            facts, ended, payload = entry.facts, entry.row, entry.payload
            chain = (ended.writer, facts.tenant_id)
            head = reached.get(chain)
            if head is None:
                head = reached[chain] = list(self._heads.get(chain) or start_of(*chain))
            row = facts + ended
            recorded_us = max(0, (now - ended.finished_at) // MICROSECOND)
            head[0] += 1
            hashed = (HASH_VERSION, *row, recorded_us)
            head[1] = digest(head[1], hashed, events.get(facts.id), payload.arguments, payload.result)
            rows.append((*row, *head, recorded_us, HASH_VERSION))
        self._staged = {chain: Link(*head) for chain, head in reached.items()}
        return rows

    def settle(self) -> None:
        """Find out from the database whether a batch was committed whose transaction failed at an unknown point."""
        with self._one_by_one:
            if self._uncertain is not None:
                self._settle()

    def _settle(self) -> None:
        assert self._uncertain is not None
        if Call.objects.filter(pk=self._uncertain.call_id).exists():
            self._heads.update(self._uncertain.heads)
        self._uncertain = None


heads = Service(ChainHeads)
