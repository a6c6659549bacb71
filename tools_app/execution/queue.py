"""Handing calls to the Celery workers and taking them back. Messages carry ids only."""

from uuid import UUID

from celery import current_app

RUN_CALL = "tools_app.run_call"


def enqueue(call_id: UUID) -> None:
    """Hand a call, durable by now, to the workers. Raises what the broker raises."""
    current_app.send_task(RUN_CALL, (str(call_id),), task_id=str(call_id), retry=False)


def revoke(call_id: UUID) -> None:
    """Tell the workers to drop a call, and to end the process that still runs it; threads cannot be ended."""
    embedded = str(current_app.conf.broker_url).startswith("memory:")
    current_app.control.revoke(str(call_id), terminate=not embedded)
