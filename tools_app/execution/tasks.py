"""Celery's way into the execution: what a call needs is in the database, sealed."""

from uuid import UUID

from celery import shared_task

from tools_app.execution import process, worker
from tools_app.execution.queue import RUN_CALL


@shared_task(name=RUN_CALL)
def run_call(call_id: str) -> None:
    """Run one background call."""
    process.start("worker")
    worker.run_claimed(UUID(call_id))
