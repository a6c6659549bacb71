"""Parked calls of upstreams: ends that no call records are recorded, and then their rows are deleted.

The rule is one record for one end. A task that waits for input is one call from its beginning to its end: its parked
call has no record of its own, and ends with it.

Every process sweeps. A row names the record of its outcome (`attender`): the call that its client answered with, which
records its own end, or a record under the row's id, which the process `owner` writes. The latter holds for calls that
no call attends any more: their client does not answer or fetch the outcome, or their holder or attender is gone.
"""

import logging
from collections.abc import Collection
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
from tools_app.calls.sweeper import StaleTracker, settle
from tools_app.calls.upstream_tasks import take_up
from tools_app.core.encryption import DecryptionError
from tools_app.models import Call, CallPayload, Outcome, ParkedCall, ParkedStatus, Process, RunningCall
from tools_app.upstreams import parking

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


class ParkedSweeper:
    """Tracks between sweeps what is unchanged, by the monotonic clock."""

    def __init__(self) -> None:
        self._rows = StaleTracker()
        self._orphans = StaleTracker()

    def sweep(self) -> None:
        """Settle what is unattended, record what this process is to record, and delete what is recorded."""
        rows = list(ParkedCall.objects.only(*STATE, "call_id"))
        unchanged = self._rows.seconds(map(_state, rows))
        alive = {*Process.objects.values_list("pk", flat=True), process_id()} if rows else set()
        orphaned = self._orphans.seconds(_state(row) for row in rows if row.owner not in alive)
        attenders = {row.attender for row in rows if row.attender is not None}
        # In this order: a call is running until it is recorded.
        running = _existing(RunningCall.objects.all(), attenders)
        recorded = _existing(Call.objects.all(), attenders)
        # The client of a call that was recorded, and not as one that asked, never answers.
        asking = {row.call_id for row in rows if row.attender is None}
        for call_id in _existing(Call.objects.exclude(outcome=Outcome.INPUT_REQUIRED), asking):
            ended = ParkedCall.objects.filter(call_id=call_id, attender=None)
            ended.update(status=ParkedStatus.ENDED, attender=call_id, output=None)
        recordable = 0
        for row in rows:
            state = _state(row)
            is_orphan = orphaned.get(state, 0.0) > settings.MCPHUB_PROCESS_TIMEOUT
            try:
                if row.attender in recorded:
                    _delete(row)
                elif row.attender == row.pk and row.owner == process_id():
                    recordable += 1
                    if recordable <= MAX_ENDS:
                        _record(row)
                else:
                    _settle(row, unchanged[state], is_orphan=is_orphan, is_attended=row.attender in running)
            except RecorderUnavailable as error:
                log.warning("The end of the parked call %s is not recorded yet: %s", row.pk, error)
            except Exception:
                # It does not hold up the others, and the next sweep repeats it.
                log.exception("The parked call %s could not be settled", row.pk)


def _existing(rows: "models.QuerySet[Any]", ids: Collection[UUID]) -> set[UUID]:
    """Return those of `ids` that rows have."""
    listed = list(ids)
    pages = (listed[start : start + PAGE_ROWS] for start in range(0, len(listed), PAGE_ROWS))
    return {id for page in pages for id in rows.filter(pk__in=page).values_list("pk", flat=True)}


def _state(row: ParkedCall) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in STATE)


def _unchanged(row: ParkedCall) -> "models.QuerySet[ParkedCall]":
    """Return the row, if it is still in the state in which it was read."""
    return ParkedCall.objects.filter(**dict(zip(STATE, _state(row), strict=True)))


def _delete(row: ParkedCall) -> None:
    _unchanged(row).delete()


def _settle(row: ParkedCall, seconds: float, *, is_orphan: bool, is_attended: bool) -> None:
    """Have this process record the end of a call by the next sweep, if it is unchanged for `seconds` for too long."""
    late = seconds > settings.MCPHUB_ELICITATION_TIMEOUT + GRACE_SECONDS
    outcome: dict[str, Any] | None = None
    if row.attender == row.pk:
        is_over = is_orphan
    elif row.attender is not None:
        # Its call left neither a record nor an intent: its process died, or could not record it.
        is_over = not is_attended and seconds > GRACE_SECONDS
        outcome = None if row.status == ParkedStatus.ENDED else parking.lost(ATTENDER_GONE)
    elif row.status == ParkedStatus.ENDED:
        is_over = late
    else:
        is_over = is_orphan or late
        outcome = parking.lost(HOLDER_DIED) if is_orphan else parking.lost(parking.NO_ANSWER, parking.UNANSWERED)
    if not is_over:
        return
    fields: dict[str, Any] = {"status": ParkedStatus.ENDED, "attender": row.pk, "owner": process_id()}
    if outcome is not None:
        fields["output"] = parking.sealed(row.pk, "output", {"events": [], "outcome": outcome})
    _unchanged(row).update(**fields)


def _record(row: ParkedCall) -> None:
    """Record the end of a call whose last record says that it asked its client, under the row's id; then delete it."""
    end = _end_of(row)
    if _is_recorded_by_call(row, end):
        _delete(row)
        return
    first_record = Call.objects.filter(pk=row.call_id).first() or RunningCall.objects.filter(pk=row.call_id).first()
    if first_record is None:
        log.warning("The end of the parked call %s cannot be recorded: its first record is gone", row.pk)
        _delete(row)
        return
    facts = Facts(*(getattr(first_record, name) for name in Facts._fields))._replace(id=row.pk)
    if isinstance(first_record, RunningCall):
        arguments = first_record.arguments
        size = len(arguments)
    else:
        payload = CallPayload.objects.filter(pk=first_record.pk).first()
        arguments, size = payload.texts().arguments if payload else "", first_record.arguments_size
    waited_us = microseconds(timezone.now() - first_record.started_at)
    builder = CallRecordBuilder(facts, arguments, size, (), _clock=perf_counter_ns() - waited_us * 1000)
    recorder.current().record(builder.finished(end))
    _delete(row)
    log.warning(
        "Parked call %s of %s was settled as %s: %s", row.call_id, first_record.tool_name, end.outcome.value, end.cause
    )


def _is_recorded_by_call(row: ParkedCall, end: End) -> bool:
    """Whether the record of the call that asked tells how a parked call ended. A task that waits for it ends so."""
    # In this order: a call is running until it is recorded.
    task = RunningCall.objects.filter(pk=row.call_id).exclude(task_seconds=None).first()
    if Call.objects.filter(pk=row.call_id).exclude(outcome=Outcome.INPUT_REQUIRED).exists():
        return True
    if task is not None and task.is_awaiting_input and not (end.outcome == Outcome.LOST and take_up(task)):
        settle(task, end)
    # One that runs again has its client's answers, and is told that the parked call has ended.
    return task is not None


def _end_of(row: ParkedCall) -> End:
    """Return the recorded end. What the upstream returned is not kept: it was not checked for secrets."""
    outcome = parking.lost(ATTENDER_GONE)
    if row.output:
        try:
            outcome = parking.opened(row, "output").get("outcome") or outcome
        except DecryptionError as error:
            outcome = parking.lost(str(error))
    kind, data = outcome["kind"], outcome["data"]
    if kind == parking.RESULT:
        is_error = data.get("isError") is True
        return End(Outcome.TOOL_ERROR if is_error else Outcome.OK, is_error=is_error, cause=NOT_FETCHED)
    if kind in {parking.UNANSWERED, parking.HOLDER_LOST}:
        return End(Outcome.TIMEOUT if kind == parking.UNANSWERED else Outcome.LOST, is_error=True, cause=data["cause"])
    return End(Outcome.TOOL_ERROR, is_error=True, cause=NOT_FETCHED)
