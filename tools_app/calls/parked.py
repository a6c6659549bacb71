"""Parked calls of upstreams: ends that no call records are recorded, and then their rows are deleted.

Every process sweeps. A row names the record of its outcome (`attender`): the call that its client answered with, which
records its own end, or a record under the row's id, which the process `owner` writes. The latter holds for calls that
no call attends any more: their client does not answer or fetch the outcome, or their holder or attender is gone.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from time import perf_counter_ns
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import models
from django.utils import timezone

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import Facts, process_id
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls.invocation import CallRecordBuilder, End, microseconds
from tools_app.calls.parked_ends import end_with_their_calls, is_recorded_by_call
from tools_app.calls.sweeper import StaleTracker
from tools_app.core.encryption import DecryptionError
from tools_app.models import Call, CallPayload, Outcome, ParkedCall, ParkedStatus, Process, RunningCall
from tools_app.upstreams import parked_rows

log = logging.getLogger(__name__)

# An outcome that is not fetched, and a row whose holder or attender should act, are kept this much longer.
GRACE_SECONDS: Final = 60.0
PAGE_ROWS: Final = 500
# Ends that one sweep records.
MAX_ENDS: Final = 100
HOLDER_DIED: Final = "the process that held it died while it waited for its client; the upstream may have run it"
ATTENDER_GONE: Final = "the call with the answers of its client left no record; the upstream may have run it"
NOT_FETCHED: Final = "its client did not fetch the outcome, which is not kept"
STATE: Final = ("pk", "status", "round", "owner", "attender")
LOADED: Final = (*STATE, "call_id")


class ParkedSweeper:
    """Tracks between sweeps what is unchanged, by the monotonic clock."""

    def __init__(self) -> None:
        self._rows = StaleTracker()
        self._orphans = StaleTracker()

    def sweep(self) -> None:
        """Settle what is unattended, record what this process is to record, and delete what is recorded."""
        rows = list(_pages())
        unchanged = self._rows.seconds(map(_state, rows))
        alive = {*Process.objects.values_list("pk", flat=True), process_id()} if rows else set()
        orphaned = self._orphans.seconds(_state(row) for row in rows if row.owner not in alive)
        attenders = {row.attender for row in rows if row.attender is not None}
        # In this order: a call is running until it is recorded.
        running = _existing(RunningCall, attenders)
        recorded = _existing(Call, attenders)
        end_with_their_calls(rows)
        recordable = 0
        for row in rows:
            state = _state(row)
            is_orphan = orphaned.get(state, 0.0) > settings.MCPHUB_PROCESS_TIMEOUT
            if row.attender in recorded:
                _each(_delete, row)
            elif row.attender == row.pk and row.owner == process_id():
                recordable += 1
                if recordable <= MAX_ENDS:
                    _each(_record, row)
            elif action := self._action(row, unchanged[state], is_orphan, row.attender in running):
                _each(action, row)

    def _action(
        self, row: ParkedCall, seconds: float, is_orphan: bool, is_attended: bool
    ) -> Callable[[ParkedCall], None] | None:
        """Return what is to be done about a row that is unchanged for `seconds`, and whose end is not recorded."""
        late = settings.MCPHUB_ELICITATION_TIMEOUT + GRACE_SECONDS
        if row.attender == row.pk:
            return _claim_end if is_orphan else None
        if row.attender is not None:
            return _unattended if not is_attended and seconds > GRACE_SECONDS else None
        if row.status == ParkedStatus.ENDED:
            return _claim_end if seconds > late else None
        if is_orphan:
            return _orphaned
        return _unanswered if seconds > late else None


def _pages() -> Iterator[ParkedCall]:
    """Yield all rows, without answers and outputs, page by page."""
    rows = ParkedCall.objects.only(*LOADED).order_by("pk")
    page = list(rows[:PAGE_ROWS])
    while page:
        yield from page
        page = list(rows.filter(pk__gt=page[-1].pk)[:PAGE_ROWS])


def _existing(model: type[models.Model], ids: Collection[UUID]) -> set[UUID]:
    """Return those of `ids` that rows of `model` have."""
    listed = list(ids)
    pages = (listed[start : start + PAGE_ROWS] for start in range(0, len(listed), PAGE_ROWS))
    return {id for page in pages for id in model._default_manager.filter(pk__in=page).values_list("pk", flat=True)}


def _each(action: Callable[[ParkedCall], None], row: ParkedCall) -> None:
    """Do what is to be done about one row; a failure does not hold up the others, and the next sweep repeats it."""
    try:
        action(row)
    except RecorderUnavailable as problem:
        log.warning("The end of the parked call %s is not recorded yet: %s", row.pk, problem)
    except Exception:
        log.exception("The parked call %s could not be settled", row.pk)


def _state(row: ParkedCall) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in STATE)


def _unchanged(row: ParkedCall) -> "models.QuerySet[ParkedCall]":
    """Return the row, if it is still in the state in which it was seen."""
    return ParkedCall.objects.filter(**dict(zip(STATE, _state(row), strict=True)))


def _delete(row: ParkedCall) -> None:
    _unchanged(row).delete()


def _claim_end(row: ParkedCall, outcome: dict[str, Any] | None = None) -> None:
    """Have this process record the end of a call: by the next sweep, and unless its state has changed."""
    fields: dict[str, Any] = {"status": ParkedStatus.ENDED, "attender": row.pk, "owner": process_id()}
    if outcome is not None:
        fields["output"] = parked_rows.sealed_output(row.pk, {"events": [], "outcome": outcome})
    _unchanged(row).update(**fields)


def _unanswered(row: ParkedCall) -> None:
    _claim_end(row, parked_rows.unanswered())


def _orphaned(row: ParkedCall) -> None:
    _claim_end(row, parked_rows.lost(HOLDER_DIED))


def _unattended(row: ParkedCall) -> None:
    """Take over from a call that left neither a record nor an intent: its process died, or could not record it."""
    _claim_end(row, None if row.status == ParkedStatus.ENDED else parked_rows.lost(ATTENDER_GONE))


def _record(row: ParkedCall) -> None:
    """Record the end of a call whose last record says that it asked its client, under the row's id; then delete it."""
    end = _end_of(row)
    if is_recorded_by_call(row, end):
        _delete(row)
        return
    first_record = Call.objects.filter(pk=row.call_id).first() or RunningCall.objects.filter(pk=row.call_id).first()
    if first_record is None:
        log.warning("The end of the parked call %s cannot be recorded: its first record is gone", row.pk)
        _delete(row)
        return
    facts = Facts(*(getattr(first_record, name) for name in Facts._fields))._replace(id=row.pk)
    arguments = _arguments_of(first_record)
    size = first_record.arguments_size if isinstance(first_record, Call) else len(arguments)
    waited_us = microseconds(timezone.now() - first_record.started_at)
    builder = CallRecordBuilder(facts, arguments, size, (), _clock=perf_counter_ns() - waited_us * 1000)
    recorder.current().record(builder.finished(end))
    _delete(row)
    log.warning(
        "Parked call %s of %s was settled as %s: %s", row.call_id, first_record.tool_name, end.outcome.value, end.cause
    )


def _arguments_of(first_record: Call | RunningCall) -> str:
    if isinstance(first_record, RunningCall):
        return first_record.arguments
    payload = CallPayload.objects.filter(pk=first_record.pk).first()
    return payload.texts().arguments if payload else ""


def _end_of(row: ParkedCall) -> End:
    """Return the recorded end. What the upstream returned is not kept: it was not checked for secrets."""
    try:
        outcome = parked_rows.opened(row, "output").get("outcome") if row.output else None
    except DecryptionError as problem:
        outcome = parked_rows.lost(str(problem))
    kind, data = (outcome["kind"], outcome[parked_rows.OUTCOME_DATA]) if outcome else ("", {})
    match kind:
        case "result":
            is_error = data.get("isError") is True
            return End(Outcome.TOOL_ERROR if is_error else Outcome.OK, is_error=is_error, cause=NOT_FETCHED)
        case parked_rows.UNANSWERED:
            return End(Outcome.TIMEOUT, is_error=True, cause=data["cause"])
        case "" | parked_rows.HOLDER_LOST:
            return End(Outcome.LOST, is_error=True, cause=data.get("cause", ATTENDER_GONE))
    return End(Outcome.TOOL_ERROR, is_error=True, cause=NOT_FETCHED)
