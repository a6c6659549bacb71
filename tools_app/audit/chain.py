"""Chains of records: each terminal record carries the SHA-256 of the record before it and of all that it says itself.

There is a chain for each process and tenant, so that nobody waits for another one's hash. The heads are in memory:
a new process begins new chains. Verification makes the same bytes again from what the database gives back.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from tools_app.audit.entries import Ending
from tools_app.audit.forkable import OwnMemory
from tools_app.audit.rows import Link
from tools_app.models import Call, CallEvent

START = b"mcphub audit chain v1\n"
MANY_EVENTS = 2000
MICROSECOND = timedelta(microseconds=1)

Chain = tuple[UUID, UUID | None]


class Doubt(NamedTuple):
    """A batch of which nobody knows whether it was committed: one of its calls, and the heads if it was."""

    call_id: UUID
    heads: dict[Chain, Link]


def start_of(writer: UUID, tenant_id: UUID | None) -> Link:
    """What the first record of a chain follows."""
    return Link(0, sha256(START + writer.bytes + (tenant_id.bytes if tenant_id else b"")).digest())


def digest(before: bytes, row: tuple[Any, ...], events: str | None, arguments: str, result: str) -> bytes:
    """The hash of a record that follows the hash `before`.

    `row` are the columns of `Facts` and `Ended`, `events` the digest of what the call said. JSON ends by itself and
    names the lengths of the texts that follow it, so no two records make the same bytes.
    """
    head, tail = arguments.encode(), result.encode()
    fixed = orjson.dumps((*row, events, len(head), len(tail)))
    return sha256(b"".join((before, fixed, head, tail))).digest()


def event_digests(counts: Mapping[UUID, int]) -> dict[UUID, str]:
    """The digest of the events that the database has of each call that said any, up to as many as it counted."""
    hashes = {call_id: sha256() for call_id, count in counts.items() if count}
    if hashes:
        events = CallEvent.objects.filter(call_id__in=hashes).order_by("call_id", "sequence")
        columns = events.values_list("call_id", "sequence", "at", "kind", "data")
        # A cursor of the server's own is worth its price for many rows only.
        rows = columns.iterator() if sum(counts.values()) > MANY_EVENTS else columns
        for call_id, sequence, at, kind, data in rows:
            if sequence <= counts[call_id]:
                text = data.encode()
                hashes[call_id].update(orjson.dumps((sequence, at, kind, len(text))) + text)
    return {call_id: made.hexdigest() for call_id, made in hashes.items()}


class Heads(OwnMemory):
    """The last record of each chain of this process. They advance only by what was committed.

    It is entered around the transaction of a batch: what `link` gives out counts once that is committed.
    """

    def _clear(self) -> None:
        self._heads: dict[Chain, Link] = {}
        self._staged: dict[Chain, Link] = {}
        self._first: UUID | None = None
        self._doubt: Doubt | None = None

    def now(self) -> dict[Chain, Link]:
        """The head of each chain. Each is committed."""
        return dict(self._heads)

    def __enter__(self) -> None:
        self._one_by_one.acquire()
        self._staged, self._first = {}, None

    def __exit__(self, kind: type[BaseException] | None, *_problem: object) -> None:
        try:
            if kind is None:
                self._heads.update(self._staged)
            elif self._first is not None:
                self._doubt = Doubt(self._first, self._staged)
        finally:
            self._one_by_one.release()

    def link(self, endings: list[Ending]) -> list[Sequence[Any]]:
        """The rows of calls that end, as the newest of their chains; after their events were written."""
        if not endings:
            return []
        self._settle()
        self._first = endings[0].facts.id
        events = event_digests({entry.facts.id: entry.ended.event_count for entry in endings})
        # Every call comes by here, and a look-up by two ids costs as much as a hash: one is enough.
        reached: dict[Chain, list[Any]] = {}
        rows: list[Sequence[Any]] = []
        now = datetime.now(UTC)
        for entry in endings:
            facts, ended, payload = entry.facts, entry.ended, entry.payload
            chain = (ended.writer, facts.tenant_id)
            head = reached.get(chain)
            if head is None:
                head = reached[chain] = list(self._heads.get(chain) or start_of(*chain))
            row = facts + ended
            head[0] += 1
            head[1] = digest(head[1], row, events.get(facts.id), payload.arguments, payload.result)
            rows.append((*row, *head, max(0, (now - ended.finished_at) // MICROSECOND)))
        self._staged = {chain: Link(*head) for chain, head in reached.items()}
        return rows

    def settle(self) -> None:
        """Learn from the database what became of a batch whose transaction failed at an unknown moment."""
        with self._one_by_one:
            self._settle()

    def _settle(self) -> None:
        if self._doubt is not None:
            if Call.objects.filter(pk=self._doubt.call_id).exists():
                self._heads.update(self._doubt.heads)
            self._doubt = None


heads = Heads()
os.register_at_fork(after_in_child=heads.begin)
