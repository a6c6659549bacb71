"""Bulk insertion of generated calls into the audit log: by COPY on PostgreSQL, otherwise in batches."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice
from typing import Final
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from benchmarks.seed_calls.bulk_copy import Copier
from benchmarks.seed_calls.generator import Made, made_calls
from benchmarks.seed_calls.shapes import Owner
from tools_app.audit import partitions
from tools_app.audit.checkpoints import pruned
from tools_app.audit.checkpoints.statements import CheckpointText, Head, signed
from tools_app.audit.partitions import TABLES
from tools_app.audit.recorder.chain import digest, start_of
from tools_app.audit.recorder.entries import HASH_VERSION, HASHED, Link
from tools_app.core.ids import new_id
from tools_app.models import Call, CallEvent, CallPayload, Checkpoint

AT_ONCE: Final = 50_000
BATCH: Final = 1_000
REMOVED_AT_ONCE: Final = 10_000


def fill(owners: Sequence[Owner], count: int, days: float, report: Callable[[int], None]) -> None:
    """Add `count` calls with payloads from the last `days`, shared among `owners`; `report` gets the running total."""
    end = timezone.now()
    begin = end - timedelta(days=days)
    partitions.create_upcoming(begin)
    made = made_calls(owners, count, begin, end)
    chains = _Chains()
    write = Copier() if connection.vendor == "postgresql" else _insert
    done = 0
    while piece := list(islice(made, AT_ONCE)):
        done += len(piece)
        with transaction.atomic():
            write(chains.writer, [(call, chains.link(call)) for call in piece])
            chains.sign(last=done == count)
        report(done)
    settle()


class _Chains:
    """The chains of a process that recorded the generated calls and has ended, so that they verify as others do."""

    def __init__(self) -> None:
        self.writer = new_id()
        self._heads: dict[UUID, Link] = {}
        self._sequence = 0
        self._previous: str | None = None
        # What a row has where nothing else is given.
        fields = [field for field in Call._meta.concrete_fields if field.attname in HASHED]
        self._empty = {
            field.attname: field.get_default() if field.has_default() or not field.null else None for field in fields
        }

    def link(self, made: Made) -> Link:
        """Return the place of the next call in its chain."""
        tenant_id = made.shape.facts["tenant_id"]
        position, before = self._heads.get(tenant_id) or start_of(self.writer, tenant_id)
        columns = {**self._empty, **made.columns, "writer": self.writer}
        row = (HASH_VERSION, *(columns[name] for name in HASHED))
        self._heads[tenant_id] = Link(position + 1, digest(before, row, None, *made.texts))
        return self._heads[tenant_id]

    def sign(self, *, last: bool) -> None:
        """Sign what was written so far."""
        self._sequence += 1
        text = CheckpointText(
            writer=self.writer,
            sequence=self._sequence,
            previous=self._previous,
            made_at=timezone.now(),
            last=last,
            by=self.writer,
            heads=[
                Head(tenant_id, link.chain_position, link.chain_hash.hex()) for tenant_id, link in self._heads.items()
            ],
            seen=[],
        )
        row = Checkpoint.objects.create(sequence=self._sequence, **signed(text))
        self._previous = row.digest.hex()


def remove(tenant_id: UUID) -> int:
    """Delete all calls of a tenant, with payloads and events, and return their number."""
    done = 0
    rows = Call.objects.filter(tenant_id=tenant_id).order_by("started_at").values_list("pk", flat=True)
    while ids := list(rows[:REMOVED_AT_ONCE]):
        with transaction.atomic():
            pruned.note(pruned.links_of(Call.objects.filter(pk__in=ids)), "generated calls")
            CallEvent.objects.filter(call_id__in=ids).delete()
            CallPayload.objects.filter(call_id__in=ids).delete()
            Call.objects.filter(pk__in=ids).delete()
        done += len(ids)
    return done


def settle() -> None:
    """Update the planner's statistics; on PostgreSQL also the visibility map, for index-only scans."""
    vacuum = "VACUUM " if connection.vendor == "postgresql" and not connection.in_atomic_block else ""
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f'{vacuum}ANALYZE "{table.name}"')


def _insert(writer: UUID, piece: list[tuple[Made, Link]]) -> None:
    calls = [Call(**made.columns, **link._asdict(), writer=writer, hash_version=HASH_VERSION) for made, link in piece]
    Call.objects.bulk_create(calls, batch_size=BATCH)
    CallPayload.objects.bulk_create(
        [
            CallPayload(call_id=made.id, arguments=made.arguments, result=made.result, packed=made.shape.packed)
            for made, _ in piece
        ],
        batch_size=BATCH,
    )
