"""Handing out anew what is queued in the database and nowhere else.

A broker that was restarted empty, or a worker that died with messages in its hand, forgets calls that the database
still has as queued. Twice is harmless: a call is claimed by one statement, which only one worker wins.
"""

import logging

from django.conf import settings

from tools_app.audit.identity import process_id
from tools_app.execution import queue
from tools_app.execution.standstill import Standstill
from tools_app.models import CallStatus, Process, RunningCall

log = logging.getLogger(__name__)


class Requeuer:
    """Remembers between looks how long calls have waited. Each process looks after those that it queued."""

    def __init__(self) -> None:
        self._waiting = Standstill()

    def look(self) -> None:
        """Queue those anew that waited for MCPHUB_LOST_SECONDS, as many as the queue lacks messages, the oldest first.

        A message that a worker holds in reserve is not in the queue either: its call is queued twice, once in
        MCPHUB_LOST_SECONDS at most, and not any more when the queue is as long as there are calls.
        """
        rows = list(_queued())
        seconds = self._waiting.seconds(row.pk for row in rows)
        waited = [row for row in rows if seconds[row.pk] > settings.MCPHUB_LOST_SECONDS]
        if not waited:
            return
        missing = len(rows) - queue.length()
        for row in _to_be_looked_after(waited)[: max(0, missing)]:
            self._waiting.forget(row.pk)
            assert row.tenant_id is not None, "who runs a call is known"
            queue.enqueue(row.pk, row.tenant_id)
            log.warning("Call %s of %s was queued anew: no worker had taken it", row.pk, row.tool_name)


def _queued() -> "list[RunningCall]":
    """What waits for a worker, the oldest first."""
    rows = RunningCall.objects.filter(status=CallStatus.QUEUED, background=True).order_by("started_at")
    return list(rows.only("owner", "tenant_id", "tool_name", "task_seconds"))


def _to_be_looked_after(rows: list[RunningCall]) -> list[RunningCall]:
    """What this process queued, and tasks of processes that are gone; other calls are lost with their process."""
    alive = set(Process.objects.values_list("pk", flat=True))
    return [row for row in rows if row.owner == process_id() or (row.owner not in alive and _adopted(row))]


def _adopted(row: RunningCall) -> bool:
    """Whether this process is the one that looks after a task from now on."""
    if row.task_seconds is None:
        return False
    orphan = RunningCall.objects.filter(pk=row.pk, status=CallStatus.QUEUED, owner=row.owner)
    return bool(orphan.update(owner=process_id()))
