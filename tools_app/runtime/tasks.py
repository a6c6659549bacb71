"""Celery tasks: background calls, whose data is encrypted in the database, and pruning. What else a worker does.

`Worker` of `celery.apps.worker` distinguishes `celery worker` from the embedded worker: only it has `on_start`
(`tests/server/test_contracts.py`).
"""

from time import sleep
from typing import Any

from celery import current_task, shared_task
from celery.apps.worker import Worker
from celery.concurrency import prefork
from celery.signals import worker_process_init, worker_process_shutdown, worker_ready, worker_shutdown

from tools_app.audit import partitions
from tools_app.audit.retention import retention
from tools_app.calls.background.queue import RUN_CALL
from tools_app.runtime import api_sources, call_strategy, inspection, process
from tools_app.runtime.call_strategy import CallTask

# The import registers the inspect command.
COMMANDS = (inspection,)


@shared_task(name=RUN_CALL, base=CallTask)
def run_call(call_id: str) -> None:
    """Run one background call, in a pool of processes."""
    call_strategy.run_call(call_id, current_task.request.headers or {})


@worker_ready.connect
def start_worker(sender: Any = None, **_options: Any) -> None:
    """Read documents in `celery worker`, with housekeeping. In a prefork pool, the processes that it forks do."""
    if not isinstance(sender.pool, prefork.TaskPool):
        start_process()


@worker_process_init.connect
def start_process(**_options: Any) -> None:
    """Read documents in a prefork pool process."""
    api_sources.reader()
    process.start("worker")


@worker_shutdown.connect
def stop_worker(sender: object = None, **_options: Any) -> None:
    """Write and sign the records of `celery worker` and its threads. The hub stops an embedded worker."""
    if isinstance(sender, Worker):
        stop_process()


@worker_process_shutdown.connect
def stop_process(**_options: Any) -> None:
    """Write and sign the records of a prefork pool process, which has its own recorder."""
    process.stop()
    process.stop_recording()


@shared_task(name="tools_app.prune")
def prune() -> None:
    """Create future partitions, and prune data that exceeds its retention period."""
    partitions.create_upcoming()
    for _ in retention.prune():
        sleep(retention.PAUSE_SECONDS)
