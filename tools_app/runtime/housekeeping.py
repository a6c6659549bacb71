"""Periodic work of a process: its heartbeat and, in another thread, sweeps and the writing of buffered data.

A process without a heartbeat is considered dead, with all its calls. So nothing may block the heartbeat: a hanging
Redis blocks other tasks for seconds.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from django.db import close_old_connections
from django.utils import timezone

from tools_app.alerts import runner
from tools_app.audit.checkpoints import signer
from tools_app.audit.recorder import denials, recorder
from tools_app.audit.retention import Daily
from tools_app.audit.stats import storage
from tools_app.calls import limits, parked, sessions, sweeper, upstream_tasks
from tools_app.catalog.kinds.openapi.sources import documents as api_sources
from tools_app.core.process.runtime import Service
from tools_app.core.process.threads import Job, start_thread
from tools_app.core.telemetry import snapshots
from tools_app.identity.issuers import directory
from tools_app.identity.oauth import pruning
from tools_app.models import CallAnswer, CallInput, SessionMessage
from tools_app.runtime import metrics_publisher
from tools_app.tenants import last_used
from tools_app.upstreams.credentials import refresh, store

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
CLOSE_SECONDS = 5.0
JOB_CLOSE_SECONDS = 2.0
# A client's answer is read at once, or the call that asked has ended.
INPUTS_LIVE = timedelta(hours=1)

Task = tuple[float, Callable[[], object]]


def heartbeat(kind: str) -> list[Task]:
    """Return the tasks that only the database may delay, with their intervals in seconds."""
    return [
        (0.25, sweeper.stop_cancelled),
        (1.0, lambda: sweeper.send_heartbeat(kind)),
    ]


def periodic_tasks() -> list[Task]:
    """Return the other tasks, with their intervals in seconds."""
    return [
        (1.0, sweeper.Sweeper().sweep),
        (1.0, sweeper.Requeuer().requeue_forgotten),
        (1.0, parked.ParkedSweeper().sweep),
        (5.0, limits.renew),
        (5.0, last_used.write),
        (snapshots.EVERY_SECONDS, metrics_publisher.publish),
        (5.0, denials.flush),
        (signer.EVERY_SECONDS, signer.sign),
        (30.0, sessions.end_idle),
        (60.0, drop_old_answers),
        (store.DELETE_EVERY_SECONDS, store.delete_unusable),
        (pruning.EVERY_SECONDS, pruning.prune),
        (storage.MERGE_SECONDS, storage.merge),
    ]


def drop_old_answers() -> None:
    """Delete expired answers of calls, inputs from clients, and messages to closed streams."""
    CallAnswer.objects.filter(expires_at__lt=timezone.now()).delete()
    for passing in (CallInput, SessionMessage):
        passing.objects.filter(created_at__lt=timezone.now() - INPUTS_LIVE).delete()


class Housekeeper:
    """The two housekeeping threads. A task that fails is logged and runs again at its next interval."""

    def __init__(self, kind: str) -> None:
        self._pruning = Daily()
        self._alerts = runner.AlertRunner()
        self._directory = Job("directory", lambda stopping: directory.check(lambda: not stopping.is_set()))
        self._stopping = threading.Event()
        self._heartbeat = start_thread("heartbeat", lambda: self._work(heartbeat(kind)))
        more = [
            (api_sources.POLL_SECONDS, api_sources.read_waiting),
            (60.0, self._pruning.prune_if_due),
            (runner.TICK_SECONDS, self._alerts.run_if_chosen),
            (directory.TICK_SECONDS, self._directory.start),
            (refresh.TICK_SECONDS, lambda: refresh.refresher().run()),
        ]
        if kind == "web":
            # Calls of upstreams run in web processes.
            more.append((1.0, upstream_tasks.UpstreamTaskSweeper().sweep))
        self._thread = start_thread("housekeeping", lambda: self._work([*periodic_tasks(), *more], self._finish))

    def stop(self) -> None:
        """Write buffered data, delete the process row, and end the threads."""
        self._stopping.set()
        self._thread.join(CLOSE_SECONDS)

    def _work(self, tasks: list[Task], at_last: Callable[[], object] = lambda: None) -> None:
        due = [0.0] * len(tasks)
        while not self._stopping.wait(TICK_SECONDS):
            _do_what_is_due(tasks, due)
        at_last()

    def _finish(self) -> None:
        for job in (self._alerts.job, self._directory):
            job.stop(JOB_CLOSE_SECONDS)
        api_sources.reader.stop()
        with suppress(Exception):
            last_used.write()
            denials.flush(at_once=True)
        # A later heartbeat would create the deleted process row again.
        self._heartbeat.join(CLOSE_SECONDS)
        # While the recorder runs, records are unsigned: the process row is deleted after they are signed.
        with suppress(Exception):
            if recorder.current.running() is None:
                sweeper.unregister()
        self._pruning.job.stop(JOB_CLOSE_SECONDS)


def _do_what_is_due(tasks: list[Task], due: list[float]) -> None:
    _do(close_old_connections)
    now = monotonic()
    for turn, (every, task) in enumerate(tasks):
        if now >= due[turn]:
            due[turn] = now + every
            _do(task)


def _do(task: Callable[[], object]) -> None:
    try:
        task()
    except Exception as problem:  # noqa: BLE001 - the database may be away for a while
        log.warning("Housekeeping is postponed: %s", problem)


# The housekeeper of this process.
housekeeper = Service(Housekeeper, Housekeeper.stop)
