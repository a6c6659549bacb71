"""Daily pruning without Celery beat, by one process of the hub in a separate thread.

Housekeeping does not prune itself, because it shows that its process is alive and pruning may take long.
"""

from threading import Event
from time import monotonic

from tools_app.audit import partitions
from tools_app.audit.recorder import entries
from tools_app.audit.retention import retention
from tools_app.core.process.threads import Job
from tools_app.models import Process

DAY_SECONDS = 24 * 3600.0


class Daily:
    """Creates future partitions and prunes, once a day from the start of its process."""

    def __init__(self) -> None:
        self._due = 0.0
        self.job = Job("pruning", _prune)

    def prune_if_due(self) -> None:
        """Start if a day has passed and this process is the one that prunes: the oldest that is alive."""
        if monotonic() < self._due or not _is_oldest():
            return
        self._due = monotonic() + DAY_SECONDS
        self.job.start()


def _prune(stopping: Event) -> None:
    """Prune batch by batch: what is left when the process stops is pruned by the next run."""
    partitions.create_upcoming()
    for _ in retention.prune():
        if stopping.wait(retention.PAUSE_SECONDS):
            break


def _is_oldest() -> bool:
    oldest = Process.objects.order_by("pk").values_list("pk", flat=True).first()
    return oldest == entries.process_id()
