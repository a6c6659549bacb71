"""Parked calls whose end belongs to another record: that of the call that asked, if it did not end by asking.

The rule is one record for one end. A task that waits for input is one call from its beginning to its end: its parked
call has no record of its own, and ends with it.
"""

from collections.abc import Iterable
from uuid import UUID

from tools_app.calls.invocation import End
from tools_app.calls.sweeper import settle
from tools_app.calls.upstream_tasks import take_up
from tools_app.models import Call, Outcome, ParkedCall, ParkedStatus, RunningCall

PAGE_ROWS = 500


def end_with_their_calls(rows: Iterable[ParkedCall]) -> None:
    """Cancel the parked calls whose asking call was recorded, and not as one that asked: its client never answers."""
    calls = [row.call_id for row in rows if row.attender is None]
    for start in range(0, len(calls), PAGE_ROWS):
        recorded = Call.objects.filter(pk__in=calls[start : start + PAGE_ROWS])
        for call_id in recorded.exclude(outcome=Outcome.INPUT_REQUIRED).values_list("pk", flat=True):
            _end(call_id)


def _end(call_id: UUID) -> None:
    rows = ParkedCall.objects.filter(call_id=call_id, attender=None)
    rows.update(status=ParkedStatus.ENDED, attender=call_id, output=None)


def is_recorded_by_call(row: ParkedCall, end: End) -> bool:
    """Whether the record of the call that asked tells how a parked call ended. A task that waits for it ends so."""
    # In this order: a call is running until it is recorded.
    task = RunningCall.objects.filter(pk=row.call_id).exclude(task_seconds=None).first()
    if Call.objects.filter(pk=row.call_id).exclude(outcome=Outcome.INPUT_REQUIRED).exists():
        return True
    if task is not None and task.is_awaiting_input and not (end.outcome == Outcome.LOST and take_up(task)):
        settle(task, end)
    # One that runs again has its client's answers, and is told that the parked call has ended.
    return task is not None
