"""Signed statements of what was pruned from the chains, so that verification continues where the records do.

A deletion must be noted in its transaction. Of a chain only runs of positions are kept, with the hash at the end of
each, so a statement stays short however much was pruned.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.checkpoints.statements import CheckpointText, PrunedText, Run, known_keys, signed, trusted
from tools_app.models import Call, ChainKind, ChainStart, Checkpoint

BATCH = 2000


class Pruned(NamedTuple):
    """A deleted record or checkpoint; `hash` is its own hash."""

    writer: UUID
    tenant_id: UUID | None
    position: int
    hash: bytes


def links_of(calls: QuerySet[Call]) -> Iterator[Pruned]:
    """Yield the links of those `calls` that are in a chain, in the order that `note` expects."""
    columns = calls.exclude(chain_position=None).order_by("writer", "tenant_id", "chain_position")
    rows = columns.values_list("writer", "tenant_id", "chain_position", "chain_hash").iterator(BATCH)
    for writer, tenant_id, position, chain_hash in rows:
        yield Pruned(writer, tenant_id, position or 0, bytes(chain_hash or b""))


def note(links: Iterable[Pruned], why: str, kind: ChainKind = ChainKind.RECORDS) -> None:
    """State that `links`, in chain order, are pruned. Call it before the deletion, in the same transaction."""
    for (writer, tenant_id), of_chain in groupby(links, key=lambda link: link[:2]):
        before = ChainStart.objects.filter(kind=kind, writer=writer, tenant_id=tenant_id)
        runs = list(_runs(of_chain))
        for row in before:
            # An untrusted statement is skipped: it would be signed again.
            if isinstance(stated := trusted(row, known_keys()), PrunedText):
                runs = joined(runs, stated.runs)
        text = PrunedText(of=kind.value, writer=writer, tenant=tenant_id, made_at=timezone.now(), runs=runs, why=why)
        before.delete()
        ChainStart.objects.create(kind=kind, tenant_id=tenant_id, position=text.position, **signed(text))


def joined(some: list[Run], more: Iterable[Run]) -> list[Run]:
    """Return the runs of a chain as one sorted list; runs that touch or overlap are joined."""
    joined_runs: list[Run] = []
    for run in sorted([*some, *more]):
        if joined_runs and run.first <= joined_runs[-1].last + 1:
            last = max(joined_runs[-1], run, key=lambda one: one.last)
            joined_runs[-1] = Run(joined_runs[-1].first, last.last, last.hash)
        else:
            joined_runs.append(run)
    return joined_runs


def drop_checkpoints(before: datetime) -> int:
    """Delete old checkpoints that no remaining record needs, state that, and return their number.

    Each writer's are deleted from the first on, up to one that was made after `before` or is the last to name a chain
    that still has records.
    """
    writers = Checkpoint.objects.filter(made_at__lt=before).order_by().values_list("writer", flat=True).distinct()
    return sum(_drop_of(writer, before) for writer in list(writers))


@transaction.atomic
def _drop_of(writer: UUID, before: datetime) -> int:
    starts = ChainStart.objects.filter(kind=ChainKind.RECORDS, writer=writer)
    pruned_to: dict[UUID | None, int] = dict(starts.values_list("tenant_id", "position"))
    # The last checkpoint to name each chain, and where it says that the chain ends.
    last_heads: dict[UUID | None, tuple[int, int]] = {}
    first_young = end = 0
    keys = known_keys()
    for row in Checkpoint.objects.filter(writer=writer).order_by("sequence").iterator(BATCH):
        text = trusted(row, keys)
        if text is None:
            # Evidence, which must be kept with what follows.
            break
        if isinstance(text, CheckpointText):
            last_heads |= {head.tenant: (text.sequence, head.position) for head in text.heads}
            end = text.sequence + 1
            if text.made_at >= before:
                first_young = first_young or text.sequence
    needed = [sequence for tenant, (sequence, last) in last_heads.items() if pruned_to.get(tenant, 0) < last]
    first_needed = min([*needed, first_young or end])
    checkpoints = Checkpoint.objects.filter(writer=writer, sequence__lt=first_needed).order_by("sequence")
    doomed = checkpoints.values_list("sequence", "digest").iterator(BATCH)
    links = (Pruned(writer, None, sequence, bytes(digest)) for sequence, digest in doomed)
    note(links, f"made before {before.isoformat()}", ChainKind.CHECKPOINTS)
    return checkpoints.delete()[0]


def _runs(links: Iterable[Pruned]) -> Iterator[Run]:
    """Yield ordered positions as runs without gaps."""
    run: Run | None = None
    for link in links:
        if run is not None and link.position == run.last + 1:
            run = Run(run.first, link.position, link.hash.hex())
            continue
        if run is not None:
            yield run
        run = Run(link.position, link.position, link.hash.hex())
    if run is not None:
        yield run
