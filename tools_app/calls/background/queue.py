"""Queueing of calls in Celery, and the end of processes that run calls which were settled without them.

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
from kombu import Connection

from tools_app.calls import tracing
from tools_app.calls.background import broker
from tools_app.calls.background.tasks import run_call
from tools_app.core.process.runtime import Service
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

# For how long a process uses a tenant's shard without asking for it again, and for how many tenants.
REMEMBER_SECONDS: Final = 1.0
MAX_REMEMBERED: Final = 10_000
# A message that the broker does not confirm counts as not sent.
CONFIRM_SECONDS: Final = 1.5
# The control command of workers that ends the process of a call (`tools_app.calls.background.worker_commands`).
END_CALL: Final = "mcphub_end_call"

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
        if limits.acquire_blocking([limit], str(tenant_id), seconds) is None:
            return shard
    return shards[first]


async def aenqueue(call_id: UUID, tenant_id: UUID) -> None:
    """Queue a tenant's call, which is durable, for the workers.

    Raises BrokerUnavailable. A broker that did not respond in time may still deliver the call.
    """
    await broker.current().acall(partial(_enqueue, call_id, tenant_id))


def enqueue(call_id: UUID, tenant_id: UUID) -> None:
    """Queue a tenant's call from a thread that can block."""
    broker.current().call(partial(_enqueue, call_id, tenant_id))


def _enqueue(call_id: UUID, tenant_id: UUID, link: Connection) -> None:
    id, shard = str(call_id), shard_of(tenant_id)
    declared: Any = link.declared_entities
    with tracing.traced_enqueue(settings.CELERY_TASK_DEFAULT_QUEUE) as headers:
        options: dict[str, Any] = {
            "task_id": id,
            "queue": shard,
            "headers": headers,
            # Celery would compute them, for events that nobody reads.
            "argsrepr": "",
            "kwargsrepr": "",
            "connection": link,
            # kombu looks whether a queue is declared too, after it has copied it. New connections know of none.
            "declare": () if shard in declared else None,
            "retry": False,
            "confirm_timeout": CONFIRM_SECONDS,
        }
        run_call.apply_async((id,), **options)
    declared.add(shard)


def length() -> int:
    """Return the number of messages in the queue, without those that a worker has reserved.

    Raises BrokerUnavailable.
    """
    return broker.current().call(length_over)


def length_over(link: Any) -> int:
    """Return the length of the queue, read over a connection. Raises the broker's errors."""
    # Over one channel, which is a connection of its own in Redis. AMQP would close it at the first missing queue.
    with link.channel() as channel:
        declared = [channel.queue_declare(name, durable=True, auto_delete=False) for name in queue_names()]
    return sum(int(each.message_count) for each in declared)


def end_process_of(call_id: UUID) -> None:
    """Tell the workers, asynchronously, to end the process of a prefork pool that runs a call. Threads cannot be ended.

    Raises BrokerUnavailable if that is known immediately; later failures are not reported.
    """
    if not settings.CELERY_BROKER_URL.startswith("memory:"):
        broker.current().submit(partial(_end_process_of, call_id))


def _end_process_of(call_id: UUID, link: Connection) -> None:
    current_app.control.broadcast(END_CALL, arguments={"call_id": str(call_id)}, connection=link)
