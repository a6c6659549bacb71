"""The thread that checks alert rules and sends their messages, in one process of the hub.

It is no part of housekeeping's own threads: a webhook or mail server that is slow holds up nothing else. A second
process that believes to be the one does no harm, as alerts are unique and deliveries are claimed.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
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


class AlertRunner:
    """Runs what is due in a thread of its own, one run at a time."""

    def __init__(self) -> None:
        self._due = {evaluation.resolve_disabled: 0.0, evaluation.evaluate: 0.0, evaluation.prune: 0.0}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def run_if_chosen(self) -> None:
        """Start a run, unless one is in progress or another process does it."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._stopping.is_set() or not evaluation.is_evaluator(entries.process_id()):
            return
        self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current message."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        try:
            close_old_connections()
            self._do_due(evaluation.resolve_disabled, EVALUATE_SECONDS)
            self._do_due(evaluation.evaluate, EVALUATE_SECONDS)
            self._do_due(evaluation.prune, PRUNE_SECONDS)
            delivery.deliver_due(lambda: not self._stopping.is_set())
        except Exception as problem:  # noqa: BLE001 - the database may be away for a while
            log.warning("Alerts are postponed: %s", problem)
        finally:
            with suppress(Exception):
                connection.close()

    def _do_due(self, work: Callable[[], None], every: float) -> None:
        now = monotonic()
        if not self._stopping.is_set() and now >= self._due[work]:
            self._due[work] = now + every
            work()
