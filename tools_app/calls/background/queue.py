"""Queueing and revocation of calls in Celery. Messages contain only ids, including those of traces.

The queue has shards: each tenant uses one, and workers read them in rotation. A tenant that queues ten thousand calls
therefore delays only itself. Shards are assigned in the store of the limits, so that tenants share one only if there
are more active tenants than shards.
"""

from functools import partial
from typing import Any
from uuid import UUID

from celery import current_app
from django.conf import settings
from kombu import Connection

from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.calls import tracing as traced
from tools_app.calls.background import broker


def queue_names() -> list[str]:
    """Return the names of the queues: the default queue and the shards."""
    base = settings.CELERY_TASK_DEFAULT_QUEUE
    return [base, *(f"{base}.{shard}" for shard in range(settings.MCPHUB_QUEUE_SHARDS))]


def shard_of(tenant_id: UUID) -> str:
    """Return the shard for a call of this tenant."""
    shards = queue_names()[1:]
    first = tenant_id.int % len(shards)
    # A tenant keeps its shard until its last call was claimed or has expired.
    seconds = settings.MCPHUB_QUEUE_TIMEOUT
    for shard in (*shards[first:], *shards[:first]):
        limit = ConcurrencyLimit("tenant", "shards", 1, f"shard:{shard}")
        if limits.hold_here([limit], str(tenant_id), seconds) is None:
            return shard
    return shards[first]


RUN_CALL = "tools_app.run_call"


# A message that the broker does not confirm counts as not sent.
CONFIRM_SECONDS = 1.5


async def aenqueue(call_id: UUID, tenant_id: UUID) -> None:
    """Queue a tenant's call, which is durable, for the workers.

    Raises BrokerUnavailable. A broker that did not respond in time may still deliver the call.
    """
    await broker.current().acall(partial(_enqueue, call_id, tenant_id))


def enqueue(call_id: UUID, tenant_id: UUID) -> None:
    """Queue a tenant's call from a thread that can block."""
    broker.current().call(partial(_enqueue, call_id, tenant_id))


def _enqueue(call_id: UUID, tenant_id: UUID, link: Connection) -> None:
    shard = shard_of(tenant_id)
    with traced.queueing(current_app.conf.task_default_queue) as headers:
        current_app.send_task(
            RUN_CALL,
            (str(call_id),),
            task_id=str(call_id),
            queue=shard,
            retry=False,
            headers=headers,
            confirm_timeout=CONFIRM_SECONDS,
            connection=link,
        )


def length() -> int:
    """Return the number of messages in the queue, without those that a worker has reserved.

    Raises BrokerUnavailable.
    """
    return broker.current().call(length_over)


def length_over(link: Any) -> int:
    """Return the length of the queue, read over `link`. Raises the broker's errors."""
    return sum(_length_of(shard, link) for shard in queue_names())


def _length_of(shard: str, link: Any) -> int:
    with link.channel() as channel:
        try:
            return int(channel.queue_declare(shard, passive=True).message_count)
        except link.channel_errors:
            return 0  # the queue does not exist yet


def revoke(call_id: UUID) -> None:
    """Tell the workers, asynchronously, to drop a call and to end the process that runs it; threads cannot be ended.

    Raises BrokerUnavailable if that is known immediately; later failures are not reported.
    """
    broker.current().submit(partial(_revoke, call_id))


def _revoke(call_id: UUID, link: Connection) -> None:
    embedded = str(current_app.conf.broker_url).startswith("memory:")
    current_app.control.revoke(str(call_id), terminate=not embedded, connection=link)
