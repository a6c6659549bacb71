"""What only the stores know of the whole hub, asked when somebody wants to read it. A store that is away tells nothing.

Each question is cheap and has its answer within the time that a readiness check may take.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from celery import current_app
from django.conf import settings
from django.db import close_old_connections, connection
from django.db.models import Count, Min
from django.utils import timezone

from tools_app.auth import keys
from tools_app.execution import queue, readiness
from tools_app.models import CallStatus, Process, RunningCall, Session, Tenant
from tools_app.telemetry.tallies import Snapshot

log = logging.getLogger(__name__)

# Who asks waits for so long, to hear of all of them.
PING_SECONDS = 0.5

T = TypeVar("T")
Row = list[Any]

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="hub-numbers")


def snapshot() -> Snapshot:
    """The hub's own gauges."""
    rows = [["mcphub_part_up", [part], float(status == "ok")] for part, status in readiness.statuses().items()]
    for rows_of in (queued, processes, open_sessions, expiring_keys, broker_queue):
        rows += _answer_of(rows_of, [])
    return {"counts": [], "spreads": [], "gauges": rows}


def tenant_names() -> Mapping[str, str]:
    """What tenants are called, by their ids; empty where nothing is counted by tenant."""
    return _answer_of(_tenant_names, {}) if settings.MCPHUB_METRICS_BY_TENANT else {}


def _tenant_names() -> dict[str, str]:
    return {str(id): slug for id, slug in Tenant.objects.values_list("pk", "slug")}


def queued() -> list[Row]:
    """How many background calls wait, and how long the oldest has."""
    waiting = RunningCall.objects.filter(status=CallStatus.QUEUED).aggregate(
        count=Count("pk"), oldest=Min("changed_at")
    )
    oldest = (timezone.now() - waiting["oldest"]).total_seconds() if waiting["oldest"] else 0.0
    return [
        ["mcphub_queued_calls", [], float(waiting["count"])],
        ["mcphub_oldest_queued_call_seconds", [], max(0.0, oldest)],
    ]


def processes() -> list[Row]:
    """How many processes of each kind live: the sweeper removes those that do not."""
    living = Process.objects.values_list("kind").annotate(count=Count("pk"))
    return [["mcphub_live_processes", [kind], float(count)] for kind, count in living]


def open_sessions() -> list[Row]:
    """How many handshake clients have a session."""
    return [["mcphub_open_sessions", [], float(Session.objects.filter(ended_at=None).count())]]


def expiring_keys() -> list[Row]:
    """How many keys need a successor soon."""
    return [["mcphub_expiring_keys", [], float(keys.expiring_soon().count())]]


def broker_queue() -> list[Row]:
    """How many messages wait in the broker."""
    return [["mcphub_broker_queue_messages", [], float(queue_length())]]


def queue_length() -> int:
    """The length of the Celery queue. Raises what the broker raises; a queue that nobody made yet is empty."""
    with current_app.connection_for_write() as link:
        link.ensure_connection(max_retries=1, timeout=round(readiness.SECONDS))
        return queue.length(link)


def workers() -> int | None:
    """How many Celery workers answer within a moment, None if the broker does not."""
    return _answer_of(_workers, None)


def _workers() -> int:
    with current_app.connection_for_write() as link:
        link.ensure_connection(max_retries=1, timeout=round(readiness.SECONDS))
        return len(current_app.control.ping(timeout=PING_SECONDS, connection=link) or [])


def _answer_of(question: Callable[[], T], otherwise: T) -> T:
    attempt = _threads.submit(_asked, question)
    try:
        return attempt.result(readiness.SECONDS)
    except Exception as problem:  # noqa: BLE001 - whatever a driver raises, the rest is told all the same
        attempt.cancel()
        log.warning("The hub does not know a number of its own: %r", problem)
        return otherwise


def _asked(question: Callable[[], T]) -> T:
    """Ask over a connection of this thread that does not outlive the question."""
    close_old_connections()
    try:
        return question()
    finally:
        connection.close()
