"""The rows of tasks that upstreams run for calls: what another process needs to wait for one, or to cancel it.

A row is written as soon as the task is known, and deleted by a sweep once the end of its call is recorded
(`tools_app/calls/upstream_tasks.py`).
"""

from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec
from django.db import transaction

from tools_app.audit.recorder.entries import process_id
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.core import encryption
from tools_app.models import CallStatus, Process, RunningCall, UpstreamTask

# The owner of what a process has left to the others, by which they find it like that of a dead one.
UNOWNED: Final = UUID(int=0)


class KeptTask(msgspec.Struct, frozen=True):
    """A task as its row stores it: `source` is the definition that was called, with its upstream.

    `key_id` and `person_id` are those of the call, which say whose credential it uses.
    """

    id: str
    source: str
    declared: dict[str, Any]
    key_id: UUID | None = None
    person_id: int | None = None

    def state(self) -> dict[str, Any]:
        """Return what a call keeps to wait for the task, instead of sending its request."""
        return {"source": self.source, "task": self.id, "declared": self.declared}


def write(context: ToolContext, upstream_id: UUID, id: str, source: str, declared: Mapping[str, Any]) -> None:
    """Store the task of a call, which this process waits for."""
    caller, call_id = context.caller, context.call_id
    task = KeptTask(id, source, dict(declared), caller.key_id, caller.person_id)
    fields = {
        "tenant_id": caller.tenant_id,
        "upstream_id": upstream_id,
        "owner": process_id(),
        "sealed": encryption.seal(msgspec.json.encode(task), _purpose(call_id)),
    }
    UpstreamTask.objects.update_or_create(call_id=call_id, defaults=fields)


def opened(row: UpstreamTask) -> KeptTask:
    """Return the task of a row. Raises DecryptionError."""
    return msgspec.json.decode(encryption.unseal(bytes(row.sealed), _purpose(row.pk)), type=KeptTask)


def take_over(call_id: UUID) -> dict[str, Any] | None:
    """Have this process, which runs the call, wait for its task. None if its upstream runs none.

    Returns what the call keeps to do so.
    """
    row = UpstreamTask.objects.filter(pk=call_id).first()
    return opened(row).state() if row is not None and take(row) else None


def continuable(rows: Collection[RunningCall], dead: Collection[UUID]) -> set[UUID]:
    """Return those calls of dead processes that do not end with them: tasks that their clients know of.

    Their upstreams run them, and no living process waits for them in place of the dead one.
    """
    ids = [row.pk for row in rows if row.owner in dead and is_promised(row)]
    if not ids:
        return set()
    alive = set(Process.objects.values_list("pk", flat=True)).difference(dead)
    owners = UpstreamTask.objects.filter(pk__in=ids).values_list("pk", "owner")
    return {id for id, owner in owners if owner not in alive}


def leave() -> set[UUID]:
    """Have other processes wait for the tasks that this one waits for, where clients know of them.

    Returns the calls, of which those that run here end here without a record. They may include calls of others.
    """
    with transaction.atomic():
        owned = UpstreamTask.objects.filter(owner__in=(process_id(), UNOWNED))
        rows = RunningCall.objects.filter(pk__in=owned.values("pk"), background=False, cancel_requested=False)
        ids = {row.pk for row in rows.defer("arguments", "sealed_arguments") if row.is_promised}
        for model in (UpstreamTask, RunningCall):
            model._default_manager.filter(pk__in=ids, owner=process_id()).update(owner=UNOWNED)
    return ids


def is_promised(row: RunningCall) -> bool:
    """Whether a call is a task of the hub that can go on in another process."""
    is_running = row.status in (CallStatus.RUNNING, CallStatus.QUEUED)
    return is_running and row.is_promised and not row.background and not row.cancel_requested


def take(row: UpstreamTask) -> bool:
    """Have this process wait for a task, or cancel it. False if another one took it."""
    return bool(UpstreamTask.objects.filter(pk=row.pk, owner=row.owner).update(owner=process_id()))


def _purpose(call_id: UUID) -> str:
    return f"upstream-task:{call_id}"
