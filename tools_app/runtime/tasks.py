"""The Celery tasks of the hub, and what else its workers do: their own services, and control commands."""

from time import sleep
from typing import Any

from celery import current_app, shared_task
from celery.concurrency import prefork
from celery.signals import worker_process_init, worker_process_shutdown, worker_ready, worker_shutdown

from tools_app.audit import partitions, retention
from tools_app.calls.background import worker_commands
from tools_app.calls.background.tasks import run_call
from tools_app.catalog.kinds.openapi.sources import documents as api_sources
from tools_app.runtime import process

# Registered by their import.
REGISTERED = (run_call, worker_commands)


@worker_ready.connect
def start_worker(sender: Any = None, **_options: Any) -> None:
    """Start the services of `celery worker`. In a prefork pool, the processes that it forks have them."""
    if not isinstance(sender.pool, prefork.TaskPool):
        start_process()


@worker_process_init.connect
def start_process(**_options: Any) -> None:
    """Start the services of a prefork pool process."""
    api_sources.reader()
    process.start("worker")


@worker_shutdown.connect
def stop_worker(sender: object = None, **_options: Any) -> None:
    """Write and sign the records of `celery worker` and its threads. The hub stops an embedded worker."""
    if isinstance(sender, current_app.Worker):
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
