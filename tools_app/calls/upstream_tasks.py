"""Tasks of upstreams whose process died or stopped: another one waits for them, or cancels them.

A call that is a task of the hub goes on: it runs again from its row, and waits for the task that its upstream runs
already, instead of sending its request. A process that stops leaves such calls to the others. Any other call has lost
its client with its process. It is recorded as lost, and its task is cancelled at the upstream.
"""

import logging
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Final
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import DatabaseError, models, transaction
from django.utils import timezone

from tools_app.audit.recorder.entries import process_id
from tools_app.calls import run
from tools_app.calls.background import worker
from tools_app.calls.background.payload import payload_of_row
from tools_app.calls.sweeper import StaleTracker
from tools_app.catalog import authoring
from tools_app.catalog.kinds.upstream import runner as kind
from tools_app.core.database import run_in_db_thread
from tools_app.models import Call, CallStatus, Outcome, ParkedCall, Process, RunningCall, Upstream, UpstreamTask
from tools_app.upstreams import connections, task_rows
from tools_app.upstreams.connections import Connection
from tools_app.upstreams.credentials import resolve
from tools_app.upstreams.credentials.store import TENANT, Owner
from tools_app.upstreams.exchanges import tasks
from tools_app.upstreams.exchanges.exchange import KEPT
from tools_app.upstreams.task_rows import KeptTask

log = logging.getLogger(__name__)

PAGE_ROWS: Final = 500
# Tasks that one sweep takes from other processes.
MAX_TAKEN: Final = 100
# Outcomes of calls whose upstream runs nothing any more: a process that stops tells it so.
ENDED_WITH_THEIR_TASKS: Final = (Outcome.OK, Outcome.TOOL_ERROR, Outcome.INTERRUPTED)


class UpstreamTaskSweeper:
    """Tracks between sweeps which tasks have no process, by the monotonic clock."""

    def __init__(self) -> None:
        self._orphans = StaleTracker()

    def sweep(self) -> None:
        """Take what other processes left, and delete the rows of recorded calls."""
        holder = connections.current.running()
        if holder is not None and holder.is_leaving:
            return
        rows = list(UpstreamTask.objects.defer("sealed"))
        alive = {*Process.objects.values_list("pk", flat=True), process_id()} if rows else set()
        orphaned = self._orphans.seconds((row.pk, row.owner) for row in rows if row.owner not in alive)
        ids = [row.pk for row in rows]
        # In this order: a call is running until it is recorded.
        running = {call.pk: call for page in _pages(RunningCall.objects.all(), ids) for call in page}
        recorded = {call.pk: call.outcome for page in _pages(Call.objects.only("outcome"), ids) for call in page}
        parked = set(ParkedCall.objects.values_list("call_id", flat=True)) if recorded else set()
        taken = 0
        for row in rows:
            outcome = recorded.get(row.pk)
            call = running.get(row.pk) if outcome is None else None
            is_orphan = orphaned.get((row.pk, row.owner), 0.0) > settings.MCPHUB_PROCESS_TIMEOUT
            if is_orphan and _is_to_be_taken(call, outcome, alive):
                taken += 1
                if taken <= MAX_TAKEN:
                    _settled(row, call)
            elif outcome is not None and row.pk not in parked:
                row.delete()


def _pages(rows: "models.QuerySet[Any]", ids: Collection[UUID]) -> "list[models.QuerySet[Any]]":
    listed = list(ids)
    return [rows.filter(pk__in=listed[at : at + PAGE_ROWS]) for at in range(0, len(listed), PAGE_ROWS)]


def _is_to_be_taken(call: RunningCall | None, outcome: str | None, alive: Collection[UUID]) -> bool:
    """Whether a task that no process waits for is to be awaited or cancelled by this one.

    `call` is its call while that runs, and `outcome` is the end of a call that is recorded.
    """
    if call is not None:
        return task_rows.is_promised(call) and call.owner not in alive
    return outcome not in ENDED_WITH_THEIR_TASKS


def _settled(row: UpstreamTask, call: RunningCall | None) -> None:
    """Wait for a task, or cancel it. A failure does not hold up the others."""
    try:
        if call is not None:
            take_up(call)
        elif task_rows.take(row):
            _logged(connections.current().submit(_cancel(row)))
    except Exception:
        log.exception("The task of an upstream for call %s could not be taken over", row.pk)


def take_up(call: RunningCall) -> bool:
    """Wait in this process for the task of a call whose process ended. False if there is none, or another one does."""
    with transaction.atomic():
        row = UpstreamTask.objects.select_for_update().filter(pk=call.pk).first()
        if row is None or not task_rows.take(row):
            return False
        payload = payload_of_row(call)
        former = payload.round.state.get(KEPT) or {}
        state = {**payload.round.state, KEPT: {**task_rows.opened(row).state(), "used": former.get("used", [])}}
        updated = msgspec.structs.replace(payload, round=msgspec.structs.replace(payload.round, state=state))
        fields = {
            "status": CallStatus.QUEUED,
            "owner": process_id(),
            "asked": {},
            "sealed_arguments": updated.sealed(call.pk),
            "changed_at": timezone.now(),
        }
        unchanged = RunningCall.objects.filter(pk=call.pk, owner=call.owner, status=call.status, cancel_requested=False)
        if not unchanged.update(**fields):
            transaction.set_rollback(True)
            return False
    _logged(connections.current().submit(worker.run_in_process(call.pk)))
    log.warning("Call %s of %s goes on here: its process ended, and its upstream runs it", call.pk, call.tool_name)
    return True


async def leave() -> None:
    """Leave the tasks that this process waits for to others, because it stops. Its other calls run on."""
    holder = connections.current.running()
    if holder is None:
        return
    try:
        left = await run_in_db_thread(task_rows.leave)
    except DatabaseError as problem:
        log.warning("Tasks of upstreams end with this process, as they could not be left to others: %s", problem)
        return
    holder.leave(left)
    for call in run.running_here():
        if call.id in left:
            # Without an outcome: the row of the call stays.
            call.interrupt()


async def _cancel(row: UpstreamTask) -> None:
    """Cancel the task of a call that is recorded, whose client has gone with its process. The upstream is told once."""
    task = await run_in_db_thread(task_rows.opened, row)
    upstream = await run_in_db_thread(Upstream.objects.select_related("tenant").filter(pk=row.upstream_id).first)
    if upstream is not None:
        await _request_cancel(upstream, task)
    await run_in_db_thread(row.delete)
    log.warning("The task of an upstream for call %s was cancelled: the process that waited for it died", row.pk)


async def _request_cancel(upstream: Upstream, task: KeptTask) -> None:
    secrets = await run_in_db_thread(authoring.decrypted_secrets, upstream.tenant)
    endpoint = kind.endpoint_of(upstream, upstream.tenant, secrets)
    if endpoint.sign_in is not None:
        owners = {"tenant": TENANT, "key": Owner(key_id=task.key_id), "person": Owner(person_id=task.person_id)}
        found = await resolve.held(endpoint, owners[endpoint.sign_in.owner])
        if found is None:
            return
        endpoint = found

    async def work(connection: Connection) -> None:
        client = await connection.client()
        await client.request("tasks/cancel", tasks.params_of(task.id, task.declared))

    await connections.current().use(endpoint, work)


def _logged(running: "Future[None]") -> None:
    def ended(done: "Future[None]") -> None:
        if not done.cancelled() and (problem := done.exception()):
            log.warning("The task of a dead process could not be settled: %s", problem)

    running.add_done_callback(ended)
