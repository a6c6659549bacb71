"""Metrics of the whole hub, queried from its stores on demand. Those of an unavailable store are omitted.

Each query is cheap and limited to the timeout of a readiness check.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from celery import current_app
from django.conf import settings
from django.db.models import Count, Min
from django.utils import timezone

from tools_app.calls.background import queue
from tools_app.core.process.runtime import Service
from tools_app.core.process.threads import with_own_connections
from tools_app.core.telemetry.registry import Snapshot
from tools_app.models import CallStatus, Process, RunningCall, Session, Tenant
from tools_app.runtime import readiness
from tools_app.tenants import keys

log = logging.getLogger(__name__)

# How long replies of workers are collected.
PING_SECONDS = 0.5

T = TypeVar("T")
Row = list[Any]

_threads = Service(lambda: ThreadPoolExecutor(max_workers=4, thread_name_prefix="hub-stats"))


def snapshot() -> Snapshot:
    """Return the gauges of the whole hub."""
    rows = [["mcphub_part_up", [part], float(status == "ok")] for part, status in readiness.statuses().items()]
    for rows_of in (queued, processes, open_sessions, expiring_keys, broker_queue):
        rows += _answer_of(rows_of, [])
    return {"counts": [], "spreads": [], "gauges": rows}


def tenant_names() -> Mapping[str, str]:
    """Return the slugs of tenants by id; empty if metrics are not labelled by tenant."""
    if not settings.MCPHUB_METRICS_BY_TENANT:
        return {}
    return _answer_of(lambda: {str(id): slug for id, slug in Tenant.objects.values_list("pk", "slug")}, {})


def queued() -> list[Row]:
    """Return the number of queued calls and the age of the oldest."""
    waiting = RunningCall.objects.filter(status=CallStatus.QUEUED).aggregate(
        count=Count("pk"), oldest=Min("changed_at")
    )
    oldest = (timezone.now() - waiting["oldest"]).total_seconds() if waiting["oldest"] else 0.0
    return [
        ["mcphub_queued_calls", [], float(waiting["count"])],
        ["mcphub_oldest_queued_call_seconds", [], max(0.0, oldest)],
    ]


def processes() -> list[Row]:
    """Return the number of live processes of each kind. The sweeper removes dead ones."""
    living = Process.objects.values_list("kind").annotate(count=Count("pk"))
    return [["mcphub_live_processes", [kind], float(count)] for kind, count in living]


def open_sessions() -> list[Row]:
    """Return the number of open sessions."""
    return [["mcphub_open_sessions", [], float(Session.objects.filter(ended_at=None).count())]]


def expiring_keys() -> list[Row]:
    """Return the number of keys that expire soon."""
    return [["mcphub_expiring_keys", [], float(keys.expiring_soon().count())]]


def broker_queue() -> list[Row]:
    """Return the number of messages in the broker."""
    return [["mcphub_broker_queue_messages", [], float(queue_length())]]


def queue_length() -> int:
    """Return the length of the Celery queue, 0 if it does not exist yet. Raises the broker's errors."""
    with current_app.connection_for_write() as link:
        link.ensure_connection(max_retries=1, timeout=round(readiness.SECONDS))
        return queue.length_over(link)


def workers() -> int | None:
    """Return how many Celery workers reply within PING_SECONDS, None if the broker is unavailable."""
    return _answer_of(_workers, None)


def _workers() -> int:
    with current_app.connection_for_write() as link:
        link.ensure_connection(max_retries=1, timeout=round(readiness.SECONDS))
        return len(current_app.control.ping(timeout=PING_SECONDS, connection=link) or [])


def _answer_of(question: Callable[[], T], otherwise: T) -> T:
    attempt = _threads().submit(with_own_connections, question)
    try:
        return attempt.result(readiness.SECONDS)
    except Exception as problem:  # noqa: BLE001 - after any error, the other figures are still reported
        attempt.cancel()
        log.warning("A metric of the hub could not be read: %r", problem)
        return otherwise
