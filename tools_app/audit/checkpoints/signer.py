"""Checkpoints: signed statements of how far the chains of a process reach.

Every process signs periodically and when it ends. A checkpoint names the one before it and those of other processes
that it finds, so none can be removed alone. For a process that died, another one signs.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from threading import Lock
from uuid import UUID

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from tools_app.audit.checkpoints import pruned, witness
from tools_app.audit.checkpoints.statements import (
    ChangesHead,
    CheckpointText,
    CitedCheckpoint,
    Head,
    exported,
    known_keys,
    signed,
    trusted,
)
from tools_app.audit.recorder.chain import heads as own_heads
from tools_app.audit.recorder.entries import process_id
from tools_app.core.ids import least_id
from tools_app.core.process.runtime import Service
from tools_app.models import Call, Change, Checkpoint, Process

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
# How often the end of the chain of changes is signed again, so that it outlives deleted checkpoints.
CHANGES_AGAIN = timedelta(days=1)
# How many of the newest checkpoints are searched for those of other processes.
NEWEST = 200
# How long before its record a call may have started, in almost every case.
MAX_CALL = timedelta(days=1)
# How many rows may be read to find a few of them; almost never reached.
MAX_CALLS = 200_000


class CheckpointSigner:
    """Signs for this process. It stores what was signed, and what could not be written yet."""

    def __init__(self) -> None:
        self._one_by_one = Lock()
        self._sequence = 0
        self._previous: str | None = None
        self._signed: dict[UUID | None, int] = {}
        self._cited: dict[UUID, int] = {}
        self._changes = 0, datetime.min.replace(tzinfo=UTC)
        self._has_ended = False
        self._pending: CheckpointText | None = None

    def sign(self, *, last: bool = False) -> None:
        """Write a checkpoint if there are new records or changes. `last`: this process adds none afterwards."""
        with self._one_by_one:
            self._deliver()
            grown, changes = self._grown(), self._new_changes()
            if grown or changes or (last and self._sequence and not self._has_ended):
                self._pending = CheckpointText(
                    writer=process_id(),
                    sequence=self._sequence + 1,
                    previous=self._previous,
                    made_at=timezone.now(),
                    last=last,
                    by=process_id(),
                    heads=grown,
                    seen=_others(self._cited),
                    changes=changes,
                )
                self._deliver()

    def _grown(self) -> list[Head]:
        """Return the heads of this process's chains that advanced since they were signed."""
        writer = process_id()
        return [
            Head(tenant_id, link.chain_position, link.chain_hash.hex())
            for (owner, tenant_id), link in own_heads().now().items()
            if owner == writer and self._signed.get(tenant_id) != link.chain_position
        ]

    def _new_changes(self) -> ChangesHead | None:
        """Return the end of the chain of changes, unless this process signed it within a day."""
        last = Change.objects.order_by("-position").values_list("position", "digest").first()
        position, signed_at = self._changes
        if last is None or (last[0] == position and timezone.now() - signed_at < CHANGES_AGAIN):
            return None
        return ChangesHead(last[0], bytes(last[1]).hex())

    def _deliver(self) -> None:
        """Write the pending checkpoint. If its number is taken, another process signed for this one as dead."""
        while (text := self._pending) is not None:
            digest = _put(text)
            if digest is None:
                taken = Checkpoint.objects.get(writer=text.writer, sequence=text.sequence)
                number, previous = taken.sequence + 1, bytes(taken.digest).hex()
                self._pending = msgspec.structs.replace(text, sequence=number, previous=previous)
                continue
            self._sequence, self._previous = text.sequence, digest
            self._signed |= {head.tenant: head.position for head in text.heads}
            self._cited |= {cited.writer: cited.sequence for cited in text.seen}
            if text.changes is not None:
                self._changes = text.changes.position, text.made_at
            self._has_ended, self._pending = text.last, None


checkpoint_signer = Service(CheckpointSigner)


def sign() -> None:
    """Sign for this process if there are new records or changes."""
    checkpoint_signer().sign()


def sign_last() -> None:
    """Sign at the end of this process, even if its last batch failed. A failure is logged: the process ends anyway.

    The process's row is deleted only after signing: while it exists, another process signs what is left.
    """
    try:
        own_heads().settle()
        checkpoint_signer().sign(last=True)
        Process.objects.filter(pk=process_id()).delete()
    except Exception as problem:  # noqa: BLE001 - the database may be gone before the process
        log.warning("The last records are not signed: %s", problem)


def sign_for(dead: Iterable[UUID]) -> None:
    """Sign what dead processes left unsigned."""
    for process in Process.objects.filter(pk__in=dead):
        newest = Checkpoint.objects.filter(writer=process.pk).order_by("-sequence").first()
        text = trusted(newest, known_keys()) if newest else None
        if isinstance(text, CheckpointText) and text.last:
            continue
        heads = _left_by(process.pk, newest.made_at if newest else process.started_at)
        if heads:
            text = CheckpointText(
                writer=process.pk,
                sequence=newest.sequence + 1 if newest else 1,
                previous=bytes(newest.digest).hex() if newest else None,
                made_at=timezone.now(),
                last=True,
                by=process_id(),
                heads=heads,
                seen=[],
            )
            _put(text)  # another process may have signed it first, which is sufficient


def _left_by(writer: UUID, since: datetime) -> list[Head]:
    """Return the last record of each chain of `writer` that grew after `since`."""
    calls = calls_from(since).filter(writer=writer, chain_position__isnull=False).order_by()
    last = dict(calls.values_list("tenant_id").annotate(Max("chain_position")))
    ends = pruned.links_of(calls.filter(chain_position__in=set(last.values())))
    return [Head(*end[1:3], end.hash.hex()) for end in ends if last[end.tenant_id] == end.position]


def calls_from(moment: datetime) -> QuerySet[Call]:
    """Return the calls recorded from `moment` on, the newest if there are more than MAX_CALLS.

    They are found by their time-ordered ids: there is no index on the time of the record.
    """
    recent = Call.objects.filter(id__gte=least_id(moment - MAX_CALL))
    for oldest in recent.order_by("-id").values_list("id", flat=True)[MAX_CALLS : MAX_CALLS + 1]:
        recent = recent.filter(id__gt=oldest)
    return recent


def _others(cited: dict[UUID, int]) -> list[CitedCheckpoint]:
    """Return the newest checkpoint of each other writer, unless it was cited before."""
    found: dict[UUID, CitedCheckpoint] = {}
    newest = Checkpoint.objects.order_by("-id").exclude(writer=process_id())
    for writer, sequence, digest in newest.values_list("writer", "sequence", "digest")[:NEWEST]:
        known = found[writer].sequence if writer in found else cited.get(writer, 0)
        if sequence > known:
            found[writer] = CitedCheckpoint(writer, sequence, bytes(digest).hex())
    return list(found.values())


def _put(text: CheckpointText) -> str | None:
    """Write a checkpoint durably and return its digest, or None if another checkpoint has its number."""
    row = Checkpoint(sequence=text.sequence, **signed(text))
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        there = Checkpoint.objects.filter(writer=text.writer, sequence=text.sequence).first()
        if there is None:
            raise
        if bytes(there.digest) != row.digest:
            return None
        # The same checkpoint, written by an attempt that got no response.
    witness.store(exported(row))
    return sha256(row.statement.encode()).hexdigest()
