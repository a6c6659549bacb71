"""Whether this process can reach what it needs to serve: each part is tried in a thread, for a bounded time."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from asgiref.sync import async_to_sync
from celery import current_app
from channels.layers import get_channel_layer
from django.db import connection

logger = logging.getLogger(__name__)

SECONDS = 2.0
GROUP = "readiness"
# A part that hangs keeps its thread, so that the next probes find none free and fail at once in good order.
_threads = ThreadPoolExecutor(max_workers=6, thread_name_prefix="readiness")


def database() -> None:
    """Ask the database for nothing, over a connection of this thread that does not outlive the question."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        connection.close()


def broker() -> None:
    """Connect to Celery's broker."""
    with current_app.connection_for_write() as link:
        link.ensure_connection(max_retries=1, timeout=round(SECONDS))


def channel_layer() -> None:
    """Send a message to a group that nobody is in."""
    layer = get_channel_layer()
    async_to_sync(layer.group_send)(GROUP, {"type": "readiness"})


PARTS: dict[str, Callable[[], None]] = {"database": database, "broker": broker, "channel_layer": channel_layer}


def statuses() -> dict[str, str]:
    """`ok` or `unavailable` for each part. Why it is unavailable goes to the log: it may name hosts."""
    tries = {name: _threads.submit(check) for name, check in PARTS.items()}
    return {name: _status(name, attempt) for name, attempt in tries.items()}


def _status(name: str, attempt: Future[None]) -> str:
    try:
        attempt.result(SECONDS)
    except Exception as problem:  # noqa: BLE001 - whatever a driver raises, the answer is the same
        attempt.cancel()
        logger.warning("Not ready, %s: %r", name, problem)
        return "unavailable"
    return "ok"
