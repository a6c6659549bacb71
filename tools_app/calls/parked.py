"""Unattended parked calls of upstreams: their outcome is recorded, and their rows are deleted.

Every process sweeps. A parked call is unattended while it waits for its client: if its holder dies then, its outcome is
unknown, and if no answer comes in time, its holder cancels it. Whoever deletes the row records the end.
"""

import logging
from collections.abc import Hashable
from time import perf_counter_ns
from typing import Final

from django.conf import settings
from django.utils import timezone

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import Facts
from tools_app.calls.invocation import CallRecordBuilder, End, microseconds
from tools_app.calls.sweeper import StaleTracker
from tools_app.models import Call, CallPayload, Outcome, ParkedCall, ParkedStatus, Process
from tools_app.models.ids import new_id

log = logging.getLogger(__name__)

# An outcome that is not fetched, and a call that runs on, are kept this much longer than a question.
GRACE_SECONDS: Final = 60.0
NO_ANSWER: Final = "its client did not answer; the upstream was told that the call is cancelled"
HOLDER_DIED: Final = "the process that held it died while it waited for its client; the upstream may have run it"


class ParkedSweeper:
    """Tracks between sweeps what is unchanged, by the monotonic clock."""

    def __init__(self) -> None:
        self._rows = StaleTracker()
        self._orphans = StaleTracker()

    def sweep(self) -> None:
        """End what is unattended."""
        rows = list(ParkedCall.objects.defer("answers", "output"))
        unchanged = self._rows.seconds(map(_state, rows))
        alive = set(Process.objects.values_list("pk", flat=True)) if rows else set()
        orphaned = self._orphans.seconds(_state(row) for row in rows if row.owner not in alive)
        for row in rows:
            waited = unchanged[_state(row)]
            if row.status != ParkedStatus.ASKING:
                if waited > settings.MCPHUB_ELICITATION_TIMEOUT + GRACE_SECONDS:
                    _ended(row)
            elif orphaned.get(_state(row), 0.0) > settings.MCPHUB_PROCESS_TIMEOUT:
                _end(row, End(Outcome.LOST, is_error=True, cause=HOLDER_DIED))
            elif waited > settings.MCPHUB_ELICITATION_TIMEOUT:
                _end(row, End(Outcome.TIMEOUT, is_error=True, cause=NO_ANSWER))


def _state(row: ParkedCall) -> Hashable:
    return row.pk, row.status, row.round


def _ended(row: ParkedCall) -> bool:
    """Delete a row that is still in the same state. False if it is not."""
    deleted, _ = ParkedCall.objects.filter(pk=row.pk, status=row.status, round=row.round).delete()
    return bool(deleted)


def _end(row: ParkedCall, end: End) -> None:
    """Record the end of a call whose last record says that it asked its client, as a call of its own."""
    if not _ended(row):
        return
    asked = Call.objects.filter(pk=row.call_id).first()
    if asked is None:
        log.warning("The end of the parked call %s cannot be recorded: its first record is gone", row.pk)
        return
    payload = CallPayload.objects.filter(pk=asked.pk).first()
    facts = Facts(*(getattr(asked, name) for name in Facts._fields))._replace(id=new_id())
    arguments = payload.texts().arguments if payload else ""
    waited_us = microseconds(timezone.now() - asked.started_at)
    builder = CallRecordBuilder(facts, arguments, asked.arguments_size, (), _clock=perf_counter_ns() - waited_us * 1000)
    recorder.current().record(builder.finished(end))
    log.warning(
        "Parked call %s of %s was settled as %s: %s", row.call_id, asked.tool_name, end.outcome.value, end.cause
    )
