"""Queueing and revocation of calls in Celery. Messages contain only ids, including those of traces.

The queue has shards: each tenant uses one, and workers read them in rotation. A tenant that queues ten thousand calls
therefore delays only itself. Shards are assigned in the store of the limits, so that tenants share one only if there
are more active tenants than shards.
"""

from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import UUID

from celery import current_app
from django.conf import settings
from kombu import Connection, Producer

from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.calls import tracing as traced
from tools_app.calls.background import broker
from tools_app.core.runtime import Service

# For how long a process uses a tenant's shard without asking for it again, and for how many tenants.
REMEMBER_SECONDS: Final = 1.0
MAX_REMEMBERED: Final = 10_000
# The delivery mode of a message that survives a restart of the broker.
PERSISTENT: Final = 2

# The shards of tenants that this process asked for last, and until when it uses them.
_remembered: Service[[], dict[UUID, tuple[str, float]]] = Service(dict)


def queue_names() -> list[str]:
    """Return the names of the queues: the default queue and the shards."""
    base = settings.CELERY_TASK_DEFAULT_QUEUE
    return [base, *(f"{base}.{shard}" for shard in range(settings.MCPHUB_QUEUE_SHARDS))]


def shard_of(tenant_id: UUID) -> str:
    """Return the shard for a call of this tenant."""
    remembered = _remembered()
    shard, until = remembered.get(tenant_id, ("", 0.0))
    now = monotonic()
    if now < until:
        return shard
    if len(remembered) >= MAX_REMEMBERED:
        remembered.clear()
    shard = _leased_shard(tenant_id)
    remembered[tenant_id] = (shard, now + REMEMBER_SECONDS)
    return shard


def forget_shards() -> None:
    """Ask again for the shard of each tenant (for tests)."""
    _remembered().clear()


def _leased_shard(tenant_id: UUID) -> str:
    shards = queue_names()[1:]
    first = tenant_id.int % len(shards)
    # A tenant keeps its shard until its last call was claimed or has expired.
    seconds = settings.MCPHUB_QUEUE_TIMEOUT + REMEMBER_SECONDS
    for shard in (*shards[first:], *shards[:first]):
        limit = ConcurrencyLimit("tenant", "shards", 1, f"shard:{shard}")
        if limits.acquire_here([limit], str(tenant_id), seconds) is None:
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
    """Publish the message of a call, as Celery's message protocol 2 defines it.

    `send_task` took three times as long: it looks up options that no call has, and binds the queue for each message.
    """
    shard, id = shard_of(tenant_id), str(call_id)
    channel = link.default_channel
    # Connections forget what was declared when they are opened again.
    declared: Any = link.declared_entities
    if shard not in declared:
        current_app.amqp.queues[shard](channel).declare()
        declared.add(shard)
    with traced.traced_enqueue(current_app.conf.task_default_queue) as headers:
        Producer(channel, auto_declare=False).publish(
            body_of(id),
            routing_key=shard,
            serializer="json",
            delivery_mode=PERSISTENT,
            headers={**headers_of(id), **headers},
            correlation_id=id,
            retry=False,
            confirm_timeout=CONFIRM_SECONDS,
        )


def body_of(id: str) -> tuple[Any, ...]:
    """Return the body of the message of a call: its arguments, and what is to follow."""
    return (id,), {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def headers_of(id: str) -> dict[str, Any]:
    """Return the headers of the message of a call."""
    return {
        "lang": "py",
        "task": RUN_CALL,
        "id": id,
        "root_id": id,
        "parent_id": None,
        "group": None,
        "eta": None,
        "expires": None,
        "retries": 0,
        "timelimit": [None, None],
        "argsrepr": f"('{id}',)",
        "kwargsrepr": "{}",
        "ignore_result": True,
    }


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
