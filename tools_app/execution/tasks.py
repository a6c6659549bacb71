"""Celery's way into the execution: what a call needs is in the database, sealed. And the nightly pruning."""

from time import sleep
from uuid import UUID

from celery import current_app, current_task, shared_task

from tools_app.audit import partitions, retention
from tools_app.execution import inspection, process, traced, worker
from tools_app.execution.queue import RUN_CALL

# Importing it is what teaches a worker its command.
COMMANDS = (inspection,)


@shared_task(name=RUN_CALL)
def run_call(call_id: str) -> None:
    """Run one background call."""
    process.start("worker")
    with traced.taken(current_app.conf.task_default_queue, current_task.request.headers or {}):
        worker.run_claimed(UUID(call_id))


@shared_task(name="tools_app.prune")
def prune() -> None:
    """Make the partitions to come, and prune what is older than it is kept."""
    partitions.make_ahead()
    for _ in retention.prune():
        sleep(retention.PAUSE_SECONDS)
