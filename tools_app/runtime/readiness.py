"""Readiness checks of the services that this process needs, each in a thread and with a timeout.

The endpoint is public, so results are cached for KEEP_SECONDS, and one check serves all concurrent requests.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Lock
from time import monotonic

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import connection, transaction

from tools_app.audit.recorder import recorder as own_recorder
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls.background import broker as own_broker
from tools_app.calls.background.broker import BrokerUnavailable
from tools_app.core.ids import new_id
from tools_app.core.process.runtime import Service
from tools_app.core.process.threads import with_own_connections
from tools_app.models import CallAnswer

logger = logging.getLogger(__name__)

SECONDS = 2.0
KEEP_SECONDS = 2.0
# How long the recorder's last outcome is valid as a check of writes. Without one, a row is written.
OUTCOME_SECONDS = 5.0
GROUP = "readiness"
# A service that hangs keeps its thread, so that later checks find no free thread and time out.
_threads = Service(lambda: ThreadPoolExecutor(max_workers=8, thread_name_prefix="readiness"))


def database() -> None:
    """Run a trivial query."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def recorder() -> None:
    """Raise RecorderUnavailable if the recorder cannot write. Without a recent outcome, write a row and delete it."""
    last = own_recorder.last_outcome()
    if last is None or monotonic() - last.at > OUTCOME_SECONDS:
        with transaction.atomic():
            CallAnswer.objects.create(call_id=new_id(), sealed=b"", expires_at=datetime.now(UTC)).delete()
    elif last.problem:
        raise RecorderUnavailable(last.problem)


def broker() -> None:
    """Connect to Celery's broker, unless it is known to be unavailable."""
    if own_broker.is_away():
        raise BrokerUnavailable("it did not answer this process")
    own_broker.connect()


def channel_layer() -> None:
    """Send a message to an empty group."""
    layer = get_channel_layer()
    async_to_sync(layer.group_send)(GROUP, {"type": "readiness"})


PARTS: dict[str, Callable[[], None]] = {
    "database": database,
    "recorder": recorder,
    "broker": broker,
    "channel_layer": channel_layer,
}


class _Results:
    """Cache of the last results."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._statuses: dict[str, str] = {}
        self._at = 0.0

    def statuses(self) -> dict[str, str]:
        """Return results that are at most KEEP_SECONDS old."""
        with self._lock:
            if not self._statuses or monotonic() - self._at >= KEEP_SECONDS:
                ends = monotonic() + SECONDS
                tries = {name: _threads().submit(with_own_connections, check) for name, check in PARTS.items()}
                self._statuses = {name: _status(name, each, ends - monotonic()) for name, each in tries.items()}
                self._at = monotonic()
            return dict(self._statuses)


_last = _Results()


def statuses() -> dict[str, str]:
    """Return `ok` or `unavailable` for each part. The reason is only logged, as it may contain host names."""
    return _last.statuses()


def _status(name: str, attempt: Future[None], seconds: float) -> str:
    try:
        attempt.result(max(0.0, seconds))
    except Exception as problem:  # noqa: BLE001 - the answer is the same for every error
        attempt.cancel()
        logger.warning("Not ready, %s: %r", name, problem)
        return "unavailable"
    return "ok"
