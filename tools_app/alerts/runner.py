"""The thread that checks alert rules and sends their messages, in one process of the hub.

It is no part of housekeeping's own threads: a webhook or mail server that is slow holds up nothing else. A second
process that believes to be the one does no harm, as alerts are unique and deliveries are claimed.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from django.db import close_old_connections, connection

from tools_app.alerts import delivery, evaluation
from tools_app.audit.recorder import entries

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 5.0
EVALUATE_SECONDS: Final = 20.0
PRUNE_SECONDS: Final = 3600.0
CLOSE_SECONDS: Final = 2.0


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
        except Exception as problem:  # noqa: BLE001 - the database may be away for a while
            log.warning("Alerts: %s is postponed: %s", self.name, problem)
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
        self._stopping = threading.Event()
        self._run_requested = threading.Event()
        # Started in the process that is chosen; the others need none.
        self._thread: threading.Thread | None = None

    def run_if_chosen(self) -> None:
        """Ask the thread for a run, unless another process does it. A run in progress is followed by another one."""
        if self._stopping.is_set() or not evaluation.is_evaluator(entries.process_id()):
            return
        self._run_requested.set()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
            self._thread.start()

    def run(self) -> None:
        """Do every step that is due."""
        for task in self._tasks:
            if not self._stopping.is_set():
                task.run_if_due()

    def stop(self) -> None:
        """Stop after the current message."""
        self._stopping.set()
        self._run_requested.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        while not self._stopping.is_set():
            if not self._run_requested.wait(2 * TICK_SECONDS):
                # Another process was chosen.
                _close_connection()
                self._run_requested.wait()
            self._run_requested.clear()
            self.run()
        _close_connection()

    def _deliver(self) -> None:
        delivery.deliver_due(lambda: not self._stopping.is_set())


def _close_connection() -> None:
    with suppress(Exception):
        connection.close()
