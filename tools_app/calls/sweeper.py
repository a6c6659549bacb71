"""Settlement of calls that their own process does not settle: lost, stuck, or ignoring their cancellation.

Every process sweeps, and measures for how long rows have been unchanged, by the monotonic clock: a wrong or changed
system clock cannot end a call. The process that deletes the running row settles the call; the others find it settled.

Calls that are queued in the database but not in the broker are queued again: a broker restarted without its data, or a
worker that died with reserved messages, loses them. Queueing twice is harmless: a call is claimed in one statement,
which succeeds in one worker.
"""

import logging
from collections.abc import Hashable, Iterable
from datetime import timedelta
from time import monotonic
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max
from django.utils import timezone

from tools_app.audit.checkpoints import signer
from tools_app.audit.recorder import entries, recorder
from tools_app.audit.recorder.entries import CallEventEntry, EventRow, process_id
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import inputs, limits, run, uncertain
from tools_app.calls.background import queue
from tools_app.calls.background.broker import BrokerUnavailable
from tools_app.calls.invocation import End, call_topic, encoded, record_builder_of_row
from tools_app.calls.outcomes import UNRECORDED, CallOutcome, outcome_of, stopped, unanswered
from tools_app.calls.run import LocalCall
from tools_app.catalog.tool_api.results import ToolResult
from tools_app.core.telemetry.logs import first_of
from tools_app.models import Call, CallEvent, CallStatus, Outcome, Process, ProcessDeath, RunningCall
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError
from tools_app.upstreams import task_rows

MAX_GAP_SECONDS = 3.0


class StaleTracker:
    """Measures how long facts are unchanged.

    After a gap between checks, such as a database outage, it restarts: a change could not have been seen.
    """

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}
        self._looked = monotonic()

    def seconds(self, facts: Iterable[Hashable]) -> dict[Hashable, float]:
        """Return for how long each of `facts` was present at every check. Facts that are missing now are forgotten."""
        now = monotonic()
        if now - self._looked > MAX_GAP_SECONDS:
            self._since.clear()
        self._looked = now
        self._since = {fact: self._since.get(fact, now) for fact in facts}
        return {fact: now - since for fact, since in self._since.items()}

    def forget(self, fact: Hashable) -> None:
        """Restart this fact at the next check."""
        self._since.pop(fact, None)


log = logging.getLogger(__name__)

# How long after its own timeout a call is ended from outside: the worker's timeout comes first.
GRACE_SECONDS = 5.0
# How long a cancelled background call may take to stop.
CANCEL_SECONDS = 3.0
UNCONFIRMED = "the database did not confirm in time that it may start"
# The end of a call that was rejected, and of one that a worker claimed and did not start.
REFUSED = End(Outcome.NOT_STARTED, http_status=503, rpc_error=INTERNAL_ERROR, cause=UNCONFIRMED)
NOT_STARTED = End(Outcome.NOT_STARTED, is_error=True, cause=UNCONFIRMED)
# The kind of event that records the response to the client where it differs from the outcome.
CLIENT_RESPONSE = "answer"
MAX_AT_ONCE = 500


def send_heartbeat(kind: str) -> None:
    """Update the heartbeat of this process."""
    alive = Process.objects.filter(pk=entries.process_id()).update(beats=F("beats") + 1)
    if not alive:
        entries.process_row(kind).save(force_insert=True)


def unregister() -> None:
    """Delete the row of this process, so that no other process waits for its next heartbeat."""
    Process.objects.filter(pk=entries.process_id()).delete()


def stop_cancelled() -> None:
    """Stop the calls of this process whose cancellation another process requested."""
    if not run.running_here():
        return
    cancelled = RunningCall.objects.filter(owner=entries.process_id(), cancel_requested=True)
    for call_id in cancelled.values_list("pk", flat=True):
        run.stop_call(call_id)


class Sweeper:
    """Tracks between sweeps what is unchanged."""

    def __init__(self) -> None:
        self._beats = StaleTracker()
        self._stuck = StaleTracker()
        self._orphaned = StaleTracker()
        self._settled = StaleTracker()

    def sweep(self) -> None:
        """Settle every call that is lost, overdue or ignores its cancellation."""
        running = run.running_here()
        here = {call.id for call in running}
        not_started = uncertain.not_started.noted()
        rows = list(RunningCall.objects.defer("arguments", "sealed_arguments"))
        self._answer_settled([call for call in running if call.has_row], {row.pk for row in rows})
        self._settle_orphaned([row for row in rows if row.pk not in here and _should_run_here(row)])
        dead = self._dead_owners(rows)
        go_on = task_rows.continuable(rows, dead)
        stuck = self._stuck.seconds(map(_progress_of, rows))
        for row in rows:
            is_over = row.pk not in go_on or row.started_at + timedelta(seconds=row.task_seconds or 0) < timezone.now()
            end = _end_of(row, row.owner in dead, stuck[_progress_of(row)]) if is_over else None
            if row.pk in not_started and row.owner == entries.process_id():
                end = NOT_STARTED if row.run_at else REFUSED
            if end is not None:
                settle(row, end)
        uncertain.not_started.queried(not_started)
        _record_uncertain_responses()
        signer.sign_for(dead)
        if dead:
            _record_deaths(dead)

    def _answer_settled(self, calls: list[LocalCall], with_row: set[UUID]) -> None:
        """Respond to calls that run here and were settled: their functions ignore their cancellation or timeout.

        Only at the second sweep, as the row of a call that has just started or ended may be in progress.
        """
        settled = {call.id: call for call in calls if call.id not in with_row}
        unchanged = self._settled.seconds(settled)
        for call_id, call in settled.items():
            if unchanged[call_id] > 0:
                call.settled_elsewhere()

    def _settle_orphaned(self, rows: list[RunningCall]) -> None:
        """Settle rows of this process that no longer run: the database was unavailable when they started or ended."""
        unchanged = self._orphaned.seconds(row.pk for row in rows)
        for row in rows:
            if row.pk not in uncertain.not_started.noted() and unchanged[row.pk] > settings.MCPHUB_PROCESS_TIMEOUT:
                outcome = Outcome.NOT_STARTED if row.status == CallStatus.QUEUED else Outcome.LOST
                settle(row, End(outcome, is_error=True, cause="its process could not record its progress"))

    def _dead_owners(self, rows: list[RunningCall]) -> set[UUID]:
        """Return processes without a heartbeat for MCPHUB_PROCESS_TIMEOUT, and owners without a process row."""
        beats = dict(Process.objects.values_list("pk", "beats"))
        facts = set(beats.items()) | {(row.owner, None) for row in rows if row.owner not in beats}
        unchanged = self._beats.seconds(facts)
        dead = {fact[0] for fact, seconds in unchanged.items() if seconds > settings.MCPHUB_PROCESS_TIMEOUT}  # type: ignore[index]
        return dead - {entries.process_id()}


def _record_deaths(dead: set[UUID]) -> None:
    """Replace the rows of dead processes by records of their deaths, which alert rules read."""
    with transaction.atomic():
        rows = Process.objects.select_for_update().filter(pk__in=dead)
        deaths = [ProcessDeath(id=row.pk, kind=row.kind, host=row.host, pid=row.pid) for row in rows]
        ProcessDeath.objects.bulk_create(deaths, ignore_conflicts=True)
        Process.objects.filter(pk__in=[death.pk for death in deaths]).delete()


def _progress_of(row: RunningCall) -> Hashable:
    """Return the parts of a row that change as its call progresses."""
    return row.pk, row.status, row.cancel_requested, row.run_at, row.changed_at


def _should_run_here(row: RunningCall) -> bool:
    if _was_withheld(row):
        return False
    return row.owner == entries.process_id() and (
        row.status == CallStatus.RUNNING or (row.status == CallStatus.QUEUED and not row.background)
    )


def _end_of(row: RunningCall, owner_is_dead: bool, unchanged_seconds: float) -> End | None:
    # A queued task that its client knows of, or one that waits for input, survives the process that queued it.
    is_queued_task = row.status == CallStatus.QUEUED and row.background and row.is_promised
    survives = row.task_seconds is not None and (is_queued_task or row.is_awaiting_input)
    if owner_is_dead and not survives and not _was_withheld(row):
        outcome = Outcome.NOT_STARTED if row.status == CallStatus.QUEUED else Outcome.LOST
        return End(outcome, is_error=True, cause="its process died")
    if row.cancel_requested and (cancelled := _end_of_cancelled(row, unchanged_seconds)):
        return cancelled
    if row.is_awaiting_input and unchanged_seconds > (row.task_seconds or 0):
        return End(Outcome.TIMEOUT, is_error=True, cause="its client did not answer its request")
    if row.status == CallStatus.QUEUED and unchanged_seconds > settings.MCPHUB_QUEUE_TIMEOUT:
        waited = f"no worker took it within {settings.MCPHUB_QUEUE_TIMEOUT:g} seconds"
        return End(Outcome.NOT_STARTED, is_error=True, cause=waited)
    if row.status == CallStatus.RUNNING and unchanged_seconds > row.timeout_seconds + GRACE_SECONDS:
        return End(Outcome.TIMEOUT, is_error=True, cause="it did not stop at its timeout")
    return None


def _end_of_cancelled(row: RunningCall, unchanged_seconds: float) -> End | None:
    """Return the end of a cancelled call that no process runs, or that does not stop."""
    cause = inputs.reason_of(row.pk).cause
    # Withdrawn from the queue, no worker claims it.
    queued = RunningCall.objects.filter(pk=row.pk, status=CallStatus.QUEUED)
    is_withdrawn = _was_withheld(row) or (
        row.status == CallStatus.QUEUED and bool(queued.update(status=CallStatus.RUNNING, run_at=None))
    )
    if row.is_awaiting_input or is_withdrawn:
        return End(Outcome.CANCELLED, is_error=True, cause=cause)
    if unchanged_seconds > CANCEL_SECONDS:
        return End(Outcome.CANCELLED, is_error=True, cause=f"{cause}; the tool did not stop")
    return None


def _was_withheld(row: RunningCall) -> bool:
    """Whether a process withdrew a call from the queue and did not settle it. Nothing ran, whichever owner it has."""
    was_queued = row.background or row.task_seconds is not None
    return row.status == CallStatus.RUNNING and was_queued and row.run_at is None and row.cancel_requested


def settle(row: RunningCall, end: End) -> bool:
    """Record the end of a call that its own process did not settle. False if it was settled in the meantime.

    A queued call is settled as not started only if no process has started it in the meantime.
    """
    answer = None
    if row.task_seconds is not None or end.outcome == Outcome.CANCELLED:
        answer = _answer(row, end).serialize()
    try:
        builder = record_builder_of_row(row, event_count=row.last_event_sequence())
    except RunningCall.DoesNotExist:  # raised when a deferred column is loaded
        return False
    only_queued = end.outcome == Outcome.NOT_STARTED and row.status == CallStatus.QUEUED
    ending = builder.finished(end, call_topic(row.pk), answer=answer, only_queued=only_queued)
    settled = recorder.current().record(ending)
    if row.background and (settled or not only_queued):
        try:
            queue.end_process_of(row.pk)
        except (BrokerUnavailable, RuntimeError) as problem:  # RuntimeError: this process stops
            log.warning("The process of call %s could not be ended: %s", row.pk, problem)
    if settled:
        limits.release_of(row.tenant_id, row.tool_id, row.pk)
        inputs.forget(row.pk)
        log.warning("Call %s of %s was settled as %s: %s", row.pk, row.tool_name, end.outcome.value, end.cause)
    return settled


def _record_uncertain_responses() -> None:
    """Add to records that exist after all what their clients were told: that the call may have run.

    A call without a record still has its running row, and is settled as lost.
    """
    call_ids = sorted(uncertain.may_have_run.noted())[:MAX_AT_ONCE]
    if not call_ids:
        return
    for call_id in Call.objects.filter(pk__in=call_ids).values_list("pk", flat=True):
        if not uncertain.may_have_run.settled(call_id):
            continue
        event_count = CallEvent.objects.filter(call_id=call_id).aggregate(last=Max("sequence"))["last"] or 0
        data = encoded({"status": 503, "code": INTERNAL_ERROR, "message": UNRECORDED}).decode()
        # Beyond the event count of the record, and so outside its hash, which was computed before.
        row = EventRow(call_id, event_count + 1, timezone.now(), CLIENT_RESPONSE, data)
        try:
            recorder.current().record(CallEventEntry(row))
        except RecorderUnavailable:
            uncertain.may_have_run.note(call_id)
            raise
    uncertain.may_have_run.queried(frozenset(call_ids))


def _answer(row: RunningCall, end: End) -> CallOutcome:
    """Return the response for a task that ended without an answer: an internal error, not an error of its tool."""
    if end.outcome == Outcome.CANCELLED:
        return stopped(row.method, end.outcome, inputs.reason_of(row.pk))
    response = unanswered(end.outcome, row.tool_name)
    message = response.result.content[0]["text"] if isinstance(response.result, ToolResult) else ""
    return outcome_of(end.outcome, response.result, RpcError(INTERNAL_ERROR, message, status=200))


class Requeuer:
    """Tracks how long calls have been queued. Each process requeues those that it queued."""

    def __init__(self) -> None:
        self._waiting = StaleTracker()

    def requeue_forgotten(self) -> None:
        """Requeue calls that waited for MCPHUB_PROCESS_TIMEOUT, oldest first, as many as messages are missing.

        A message that a worker has reserved is not in the queue either: its call is queued again, at most once in
        MCPHUB_PROCESS_TIMEOUT, until the queue is as long as there are calls.
        """
        queued = RunningCall.objects.filter(status=CallStatus.QUEUED, background=True).order_by("started_at")
        rows = list(queued.only("owner", "tenant_id", "tool_name", "task_seconds", "started_at", "changed_at"))
        seconds = self._waiting.seconds(row.pk for row in rows)
        refused = uncertain.not_started.noted()
        waited = [row for row in rows if row.pk not in refused and seconds[row.pk] > settings.MCPHUB_PROCESS_TIMEOUT]
        if not waited:
            return
        missing = len(rows) - queue.length()
        alive = set(Process.objects.values_list("pk", flat=True))
        own = [row for row in waited if row.owner == process_id() or (row.owner not in alive and self._adopt(row))]
        requeued = []
        for row in own[: max(0, missing)]:
            self._waiting.forget(row.pk)
            assert row.tenant_id is not None, "who runs a call is known"
            queue.enqueue(row.pk, row.tenant_id)
            requeued.append(f"{row.pk} of {row.tool_name}")
        if requeued:
            log.warning(
                "%d calls were queued again, as no worker had taken them: %s", len(requeued), first_of(requeued)
            )

    @staticmethod
    def _adopt(row: RunningCall) -> bool:
        """Take over a task of a dead process, if its client knows of it. Other calls are lost with their process.

        A client that does not know of its task may have been told that nothing ran.
        """
        orphan = RunningCall.objects.filter(pk=row.pk, status=CallStatus.QUEUED, owner=row.owner)
        return row.is_promised and bool(orphan.update(owner=process_id()))
