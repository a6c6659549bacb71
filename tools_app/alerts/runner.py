"""The thread that checks alert rules and sends their messages, in one process of the hub.

It is no part of housekeeping's own threads: a webhook or mail server that is slow holds up nothing else. A second
process that believes to be the one does no harm, as alerts are unique and deliveries are claimed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from django.db import close_old_connections

from tools_app.alerts import delivery, evaluation
from tools_app.audit.recorder import entries
from tools_app.core.process.threads import Job

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 5.0
EVALUATE_SECONDS: Final = 20.0
PRUNE_SECONDS: Final = 3600.0


@dataclass
class PeriodicTask:
    """Something that a run does, which is due again `interval` seconds after it succeeded."""

    name: str
    work: Callable[[], object]
    interval: float = 0.0
    due_at: float = 0.0

    def run_if_due(self) -> None:
        """Do the work if it is due. One that fails is logged, and due in the next run."""
        if monotonic() < self.due_at:
            return
        try:
            # A connection that an earlier step broke is replaced.
            close_old_connections()
            self.work()
        except Exception as error:  # noqa: BLE001 - the database may be away for a while
            log.warning("Alerts: %s is postponed: %s", self.name, error)
        else:
            self.due_at = monotonic() + self.interval


class AlertRunner:
    """Runs what is due in a thread of its own, one run at a time."""

    def __init__(self) -> None:
        self._tasks = [
            PeriodicTask("the end of alerts of disabled rules", evaluation.resolve_disabled, EVALUATE_SECONDS),
            PeriodicTask("the check of the rules", evaluation.evaluate, EVALUATE_SECONDS),
            PeriodicTask("the deletion of old alerts", evaluation.prune, PRUNE_SECONDS),
            PeriodicTask("the delivery of messages", self._deliver),
        ]
        self.job = Job("alerts", lambda _stopping: self.run())

    def run_if_chosen(self) -> None:
        """Start a run in the process that is chosen, unless one is in progress."""
        if evaluation.is_evaluator(entries.process_id()):
            self.job.start()

    def run(self) -> None:
        """Do every step that is due. A process that stops sends the current message only."""
        for task in self._tasks:
            if not self.job.stopping.is_set():
                task.run_if_due()

    def _deliver(self) -> None:
        delivery.deliver_due(lambda: not self.job.stopping.is_set())
