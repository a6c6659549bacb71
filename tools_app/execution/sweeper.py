"""Settling calls that nobody else will settle: lost with their process, stuck, or deaf to their cancellation.

Every process sweeps. Time is taken by watching how long a fact has stood still. Whoever removes the running row
settles the call; the others find that it is done.
"""

import logging
from collections.abc import Hashable
from uuid import UUID

from django.conf import settings
from django.db.models import F

from tools_app.audit import evidence, identity, recorder
from tools_app.auth import vault
from tools_app.events.store import answer_purpose
from tools_app.execution import doubts, inputs, limiting, local, queue
from tools_app.execution.invocation import End, call_topic, ledger_of_row
from tools_app.execution.results import ToolResult
from tools_app.execution.run import ran, unanswered
from tools_app.execution.standstill import Standstill
from tools_app.models import CallStatus, Outcome, Process, RunningCall
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError

log = logging.getLogger(__name__)

# What a call may take beyond its own timeout before somebody else ends it: the worker's own timeout comes first.
GRACE_SECONDS = 5.0
TOLD = End(Outcome.LOST, http_status=503, rpc_error=INTERNAL_ERROR, cause="its client was told that nothing ran")


def beat(kind: str) -> None:
    """Show that this process lives."""
    alive = Process.objects.filter(pk=identity.process_id()).update(beats=F("beats") + 1)
    if not alive:
        identity.row(kind).save(force_insert=True)


def leave() -> None:
    """Say that this process is gone, so that nobody waits for its next beat."""
    Process.objects.filter(pk=identity.process_id()).delete()


def stop_cancelled() -> None:
    """Stop the calls of this process that another one was asked to cancel."""
    if not local.running():
        return
    own = RunningCall.objects.filter(owner=identity.process_id(), cancel_requested=True)
    for call_id in own.values_list("pk", flat=True):
        local.stop(call_id)


class Sweeper:
    """Remembers between sweeps what stood still."""

    def __init__(self) -> None:
        self._beats = Standstill()
        self._stuck = Standstill()
        self._forsaken = Standstill()

    def sweep(self) -> None:
        """Settle every call that is lost, overdue or deaf."""
        here = {call.id for call in local.running()}
        refused = doubts.noted()
        rows = list(RunningCall.objects.defer("arguments", "sealed_arguments"))
        self._settle_forsaken([row for row in rows if row.pk not in here and _should_run_here(row)])
        dead = self._dead_owners(rows)
        stuck = self._stuck.seconds(map(_standing, rows))
        for row in rows:
            end = TOLD if row.pk in refused else _end_of(row, row.owner in dead, stuck[_standing(row)])
            if end is not None:
                settle(row, end)
        doubts.forget(refused)
        evidence.sign_for(dead)
        Process.objects.filter(pk__in=dead).delete()

    def _settle_forsaken(self, rows: list[RunningCall]) -> None:
        """Calls that stand as this process's and run here no more: the database was away when they began or ended."""
        stood = self._forsaken.seconds(row.pk for row in rows)
        for row in rows:
            if stood[row.pk] > settings.MCPHUB_LOST_SECONDS:
                settle(row, End(Outcome.LOST, is_error=True, cause="its process could not record how it went on"))

    def _dead_owners(self, rows: list[RunningCall]) -> set[UUID]:
        """Processes whose heart stood still for MCPHUB_LOST_SECONDS, and owners that are no process at all."""
        beats = dict(Process.objects.values_list("pk", "beats"))
        facts = set(beats.items()) | {(row.owner, None) for row in rows if row.owner not in beats}
        stood = self._beats.seconds(facts)
        dead = {fact[0] for fact, seconds in stood.items() if seconds > settings.MCPHUB_LOST_SECONDS}  # type: ignore[index]
        return dead - {identity.process_id()}


def _standing(row: RunningCall) -> Hashable:
    """What of a call changes as it goes on."""
    return row.pk, row.status, row.cancel_requested, row.run_at, row.changed_at


def _should_run_here(row: RunningCall) -> bool:
    return row.owner == identity.process_id() and (
        row.status == CallStatus.RUNNING or (row.status == CallStatus.QUEUED and not row.background)
    )


def _needs_no_owner(row: RunningCall) -> bool:
    """Whether a call is safe without the process that queued it: a task in the queue, or one that was put aside."""
    queued = row.status == CallStatus.QUEUED and row.background
    return row.task_seconds is not None and (queued or row.is_put_aside)


def _end_of(row: RunningCall, owner_is_dead: bool, stood_seconds: float) -> End | None:
    if row.is_put_aside and (row.cancel_requested or stood_seconds > (row.task_seconds or 0)):
        outcome = Outcome.CANCELLED if row.cancel_requested else Outcome.TIMEOUT
        return End(outcome, is_error=True, cause="its client did not answer what it asked")
    if owner_is_dead and not _needs_no_owner(row):
        return End(Outcome.LOST, is_error=True, cause="its process died")
    if row.cancel_requested and stood_seconds > settings.MCPHUB_CANCEL_SECONDS:
        why = inputs.reason_of(row.pk) or "cancelled"
        return End(Outcome.CANCELLED, is_error=True, cause=f"{why}; the tool did not stop by itself")
    if row.status == CallStatus.QUEUED and stood_seconds > settings.MCPHUB_QUEUE_SECONDS:
        return End(Outcome.TIMEOUT, is_error=True, cause="no worker took it")
    if row.status == CallStatus.RUNNING and stood_seconds > row.timeout_seconds + GRACE_SECONDS:
        return End(Outcome.TIMEOUT, is_error=True, cause="it did not end at its timeout")
    return None


def settle(row: RunningCall, end: End) -> bool:
    """Record how a call ended that its own process did not settle. False if it was settled meanwhile."""
    if row.task_seconds is not None:
        end = end.with_answer(vault.seal(_task_answer(row, end), answer_purpose(row.pk)))
    try:
        ledger = ledger_of_row(row, said=row.said())
    except RunningCall.DoesNotExist:  # looked for the columns that a sweep leaves out
        return False
    settled = recorder.current().record(ledger.ending(end, call_topic(row.pk)))
    if row.background:
        _revoke(row)
    if settled:
        limiting.let_go_of(row.tenant_id, row.tool_id, row.pk)
        inputs.forget(row.pk)
        log.warning("Call %s of %s was settled as %s: %s", row.pk, row.tool_name, end.outcome.value, end.cause)
    return settled


def _revoke(row: RunningCall) -> None:
    """End what may still run, as far as the broker can be reached: what it comes to changes no record any more."""
    try:
        queue.revoke(row.pk)
    except Exception as problem:  # noqa: BLE001 - whatever the broker raises
        log.warning("Call %s could not be revoked: %s", row.pk, problem)


def _task_answer(row: RunningCall, end: End) -> bytes:
    """What the client of a task hears that ended without an answer: it failed by no fault of its tool."""
    told = unanswered(end.outcome, row.tool_name)
    message = told.result.content[0]["text"] if isinstance(told.result, ToolResult) else ""
    return ran(end.outcome, told.result, RpcError(INTERNAL_ERROR, message, status=200)).kept()
