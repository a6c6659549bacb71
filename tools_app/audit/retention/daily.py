"""Daily pruning without Celery beat, by one process of the hub in a separate thread.

Housekeeping does not prune itself, because it shows that its process is alive and pruning may take long.
"""

import logging
import threading
from time import monotonic

from django.db import connection

from tools_app.audit import partitions
from tools_app.audit.recorder import entries
from tools_app.audit.retention import retention
from tools_app.models import Process

log = logging.getLogger(__name__)

DAY_SECONDS = 24 * 3600.0
CLOSE_SECONDS = 2.0


class Daily:
    """Creates future partitions and prunes, once a day from the start of its process."""

    def __init__(self) -> None:
        self._due = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def prune_if_due(self) -> None:
        """Start if a day has passed and this process is the one that prunes: the oldest that is alive."""
        if monotonic() < self._due or not _is_oldest():
            return
        self._due = monotonic() + DAY_SECONDS
        self._thread = threading.Thread(target=self._work, name="pruning", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current batch; the next run continues from there."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        try:
            partitions.create_upcoming()
            for _ in retention.prune():
                if self._stopping.wait(retention.PAUSE_SECONDS):
                    break
        except Exception as problem:  # noqa: BLE001 - the database may be away: tomorrow is another day
            log.warning("Pruning was broken off: %s", problem)
        finally:
            connection.close()


def _is_oldest() -> bool:
    oldest = Process.objects.order_by("pk").values_list("pk", flat=True).first()
    return oldest == entries.process_id()
