"""Rebuilding of figures from the calls in the log: for a time without figures, or with calls added otherwise.

Days that are over are read first and then replaced. What the recorder may still add to is read and replaced in one
transaction, which sees calls and figures of the same moment; if another process changes one of these figures meanwhile,
it is retried.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from time import sleep
from typing import Any, Final, NamedTuple

from django.db import IntegrityError, OperationalError, connection, transaction
from django.utils import timezone

from tools_app.audit.recorder.entries import RECORD_COLUMNS, CallFinished, Facts, FinishedRow, Payload
from tools_app.audit.retention import RetentionPolicy
from tools_app.audit.stats import counters, storage
from tools_app.audit.stats.counters import NIL, Kind, Names, Numbers, period_of
from tools_app.audit.stats.storage import DAY, HOUR
from tools_app.core.ids import least_id, made_at
from tools_app.models import Call

PAGE: Final = 2000
# Ids are created when calls start, but not at the same instant.
MARGIN: Final = timedelta(minutes=10)
# Calls almost never end later than this after their start.
MAX_CALL: Final = timedelta(days=1)
TRIES, TRY_AGAIN_SECONDS = 10, 0.5


class Rebuilt(NamedTuple):
    """A time span whose figures were rebuilt, and the number of its records."""

    begin: datetime
    end: datetime
    records: int


class _Counted(NamedTuple):
    numbers: dict[Kind, Numbers]
    records: int


def rebuild(since: datetime | None = None) -> Iterator[Rebuilt]:
    """Rebuild figures from the day of `since`, or of the oldest call, to this hour; yield a step for each day or hour.

    Figures of pruned calls stay as they are.
    """
    oldest = Call.objects.order_by("pk").first()
    first = since or (made_at(oldest.pk) - MARGIN if oldest else None)
    if first is None:
        return
    now = timezone.now()
    over, end = period_of(now - MAX_CALL, DAY), period_of(now, HOUR)
    begin = period_of(first, DAY)
    while begin < end:
        step = timedelta(seconds=DAY if begin < over else HOUR)
        yield _rebuilt(begin, begin + step, is_over=begin < over)
        begin += step


def _rebuilt(begin: datetime, end: datetime, *, is_over: bool) -> Rebuilt:
    counted = _counted(begin, end) if is_over else None
    for left in reversed(range(TRIES)):
        try:
            return Rebuilt(begin, end, _replaced(begin, end, counted))
        except (OperationalError, IntegrityError):
            if not left:
                raise
            sleep(TRY_AGAIN_SECONDS)
    raise AssertionError("unreachable")


def _replaced(begin: datetime, end: datetime, counted: _Counted | None) -> int:
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        # Counted before locking, because the recorder adds to these rows. What it adds meanwhile is detected when they
        # are locked. NOWAIT rules out a deadlock with it.
        counts = counted or _counted(begin, end)
        held = list(storage.within(begin, end).select_for_update(nowait=True).values_list("pk", "tenant_id"))
        # The owners of whom no call from `begin` on is pruned.
        keeping = RetentionPolicy()
        owners = {tenant for _, tenant in held} | {kind[0] for kind in counts.numbers}
        since = {owner: keeping.since(None if owner == NIL else owner) for owner in owners}
        whole = {owner for owner, moment in since.items() if moment is None or moment <= begin}
        storage.within(begin, end).filter(tenant_id__in=whole).delete()
        by_length: defaultdict[int, dict[Kind, Numbers]] = defaultdict(dict)
        now = timezone.now()
        for (owner, begins_at, *rest), numbers in counts.numbers.items():
            if owner in whole:
                seconds = storage.seconds_at(begins_at, now)
                kind: Any = (owner, period_of(begins_at, seconds), *rest)
                counters.add_to(by_length[seconds], kind, numbers)
        for seconds, numbers_of_length in by_length.items():
            storage.add(numbers_of_length, seconds)
    return counts.records


def _counted(begin: datetime, end: datetime) -> _Counted:
    """Return the figures of calls that started in a time span, in the shortest periods."""
    total: dict[Kind, Numbers] = {}
    names, records = Names(), 0
    calls = Call.objects.filter(pk__lt=least_id(end + MARGIN)).order_by("pk")
    last = least_id(begin - MARGIN)
    while rows := list(calls.filter(pk__gt=last).values_list(*RECORD_COLUMNS)[:PAGE]):
        last = rows[-1][0]
        endings = []
        for row in rows:
            facts = Facts._make(row[: len(Facts._fields)])
            # Pages are limited by id, which is indexed; the start time decides which calls count.
            if begin <= facts.started_at < end:
                ended = FinishedRow._make(row[len(Facts._fields) :])
                endings.append(CallFinished(facts, ended, Payload(facts.id, "", ""), settles=False))
        records += len(endings)
        for kind, numbers in counters.numbers_of(endings, names).items():
            counters.add_to(total, kind, numbers)
    return _Counted(total, records)
