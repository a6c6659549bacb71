"""Handing calls to the Celery workers and taking them back. Messages carry ids only, those of traces among them."""

from typing import Any
from uuid import UUID

from celery import current_app

from tools_app.execution import lanes, traced

RUN_CALL = "tools_app.run_call"


def enqueue(call_id: UUID, tenant_id: UUID) -> None:
    """Hand a tenant's call, durable by now, to the workers. Raises what the broker raises."""
    lane = lanes.lane_of(tenant_id)
    with traced.queueing(current_app.conf.task_default_queue) as headers:
        current_app.send_task(RUN_CALL, (str(call_id),), task_id=str(call_id), queue=lane, retry=False, headers=headers)


def length(link: Any = None) -> int:
    """How many messages lie in the queue; those that a worker holds already are not among them.

    Asked over `link` if there is one. Raises what the broker raises.
    """
    if link is None:
        with current_app.connection_for_read() as own:
            return length(own)
    return sum(_length_of(lane, link) for lane in lanes.names())


def _length_of(lane: str, link: Any) -> int:
    with link.channel() as channel:
        try:
            return int(channel.queue_declare(lane, passive=True).message_count)
        except link.channel_errors:
            return 0  # no queue, no message


def revoke(call_id: UUID) -> None:
    """Tell the workers to drop a call, and to end the process that still runs it; threads cannot be ended."""
    embedded = str(current_app.conf.broker_url).startswith("memory:")
    current_app.control.revoke(str(call_id), terminate=not embedded)
