"""Bulk insertion of generated calls into the audit log: by COPY on PostgreSQL, otherwise in batches."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice
from typing import Final
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from benchmarks.seed_calls.bulk_copy import MICROSECOND, Copier
from benchmarks.seed_calls.generator import Made, made_calls
from benchmarks.seed_calls.shapes import Owner
from tools_app.audit import partitions
from tools_app.audit.partitions import TABLES
from tools_app.models import Call, CallEvent, CallPayload

AT_ONCE: Final = 50_000
BATCH: Final = 1_000
REMOVED_AT_ONCE: Final = 10_000


def fill(owners: Sequence[Owner], count: int, days: float, report: Callable[[int], None]) -> None:
    """Add `count` calls with payloads from the last `days`, shared among `owners`; `report` gets the running total."""
    end = timezone.now()
    begin = end - timedelta(days=days)
    partitions.create_since(begin)
    made = made_calls(owners, count, begin, end)
    write = Copier() if connection.vendor == "postgresql" else _insert
    done = 0
    while piece := list(islice(made, AT_ONCE)):
        with transaction.atomic():
            write(piece)
        done += len(piece)
        report(done)
    settle()


def remove(tenant_id: UUID) -> int:
    """Delete all calls of a tenant, with payloads and events, and return their number."""
    done = 0
    rows = Call.objects.filter(tenant_id=tenant_id).order_by().values_list("pk", flat=True)
    while ids := list(rows[:REMOVED_AT_ONCE]):
        with transaction.atomic():
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


def _insert(piece: list[Made]) -> None:
    Call.objects.bulk_create(map(_call, piece), batch_size=BATCH)
    CallPayload.objects.bulk_create(map(_payload, piece), batch_size=BATCH)


def _call(made: Made) -> Call:
    return Call(
        **made.shape.facts,
        id=made.id,
        started_at=made.at,
        finished_at=made.at + made.took,
        duration_us=made.took // MICROSECOND,
        request_id=str(made.number),
    )


def _payload(made: Made) -> CallPayload:
    return CallPayload(call_id=made.id, arguments=made.arguments, result=made.result, packed=made.shape.packed)
