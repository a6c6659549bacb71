"""Checks of Redis, channel layer, broker and Celery workers: reachable, fast, same version, no backlog."""

import asyncio
from collections.abc import Iterator, Mapping
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

from celery import current_app
from django.conf import settings
from django.utils import timezone

from tools_app.calls.background.tasks import run_call
from tools_app.calls.background.worker_commands import CODE, code_digest
from tools_app.core.notifications import publish
from tools_app.core.notifications.listener import TopicListener
from tools_app.doctor.configuration import is_embedded
from tools_app.doctor.findings import Finding, grade, ok, problem, warning
from tools_app.models import CallStatus, RunningCall
from tools_app.runtime import hub_stats, readiness

PINGS = 5
REDIS_SECONDS = 2.0
SLOW_PING_SECONDS = 0.02
MIN_REDIS_VERSION = 6
MAX_MEMORY_FRACTION = 0.9
SCHEMES = ("redis:", "rediss:", "unix:")
ROUND_TRIP_SECONDS = 3.0
RESEND_SECONDS = 0.2
SLOW_ROUND_TRIP_SECONDS = 0.1
WORKER_TIMEOUT_SECONDS = 2.0
MAX_QUEUED_MESSAGES = 100
MAX_QUEUED_SECONDS = 60.0


def redis_servers() -> Iterator[Finding]:
    """Check each Redis server in the settings."""
    urls = dict.fromkeys(url for url in (settings.REDIS_URL, settings.CELERY_BROKER_URL) if url.startswith(SCHEMES))
    for number, url in enumerate(urls):
        yield from _redis_server("redis" if number == 0 else "redis (broker)", url)


def _redis_server(about: str, url: str) -> Iterator[Finding]:
    # Imported here: the embedded hub does not need the extra.
    from redis import Redis  # noqa: PLC0415

    with Redis.from_url(url, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS) as server:
        latencies = []
        for _ in range(PINGS):
            started_at = perf_counter()
            server.ping()
            latencies.append(perf_counter() - started_at)
        info: dict[str, Any] = dict(server.info())
    latency = median(latencies)
    yield grade(
        about,
        f"version {info['redis_version']} responds in {latency * 1000:.1f} ms",
        f"Use Redis {MIN_REDIS_VERSION} or newer, close to the hub: rate limits and notifications wait for it.",
        is_problem=int(str(info["redis_version"]).split(".")[0]) < MIN_REDIS_VERSION,
        is_warning=latency > SLOW_PING_SECONDS,
    )
    yield from _memory(about, info)


def _memory(about: str, info: dict[str, Any]) -> Iterator[Finding]:
    max_memory, used_memory = int(info.get("maxmemory", 0)), int(info["used_memory"])
    limit = f"{max_memory / 2**20:.0f} MiB" if max_memory else "no limit"
    policy = info.get("maxmemory_policy", "")
    yield grade(
        f"{about} memory",
        f"{used_memory / 2**20:.0f} MiB of {limit}, policy {policy}",
        "Set maxmemory-policy noeviction: any other policy deletes queued calls and limits when memory is full.",
        is_problem=bool(policy) and policy != "noeviction",
    )
    if max_memory and used_memory > max_memory * MAX_MEMORY_FRACTION:
        yield warning(
            f"{about} memory", "nearly full", "Raise maxmemory, and check what else uses this Redis (redis-cli info)."
        )
    is_persisted = info.get("aof_enabled") or info.get("rdb_last_bgsave_status") == "ok"
    if not is_persisted:
        yield warning(f"{about} persistence", "its last save failed", "See its log. Queued messages can be lost.")
    else:
        yield ok(f"{about} persistence", "append-only file" if info.get("aof_enabled") else "snapshots")


def round_trip() -> Iterator[Finding]:
    """Send a notification and measure the time until it arrives."""
    try:
        seconds = asyncio.run(_round_trip())
    finally:
        publish.publisher.stop()
    if seconds is None:
        yield problem(
            "channel layer",
            f"no notification arrived within {ROUND_TRIP_SECONDS:g} seconds",
            "Check Redis (REDIS_URL) and its log. Progress and cancellations are delayed until then.",
        )
        return
    yield grade(
        "channel layer",
        f"a notification arrives after {seconds * 1000:.1f} ms",
        "Use a Redis server closer to the hub: progress and cancellations wait for it.",
        is_warning=seconds > SLOW_ROUND_TRIP_SECONDS,
    )


async def _round_trip() -> float | None:
    topic, listener = f"doctor:{uuid4()}", TopicListener()
    try:
        with listener.subscribe(topic) as subscription:
            deadline = perf_counter() + ROUND_TRIP_SECONDS
            # The first notifications may be sent before the subscription is active.
            while (started_at := perf_counter()) < deadline:
                publish.notify(topic)
                if await subscription.wait(RESEND_SECONDS):
                    return perf_counter() - started_at
    finally:
        await listener.stop()
    return None


def broker() -> Iterator[Finding]:
    """Check that the broker answers, and the length of its queue."""
    if is_embedded():
        yield ok("broker", "in-memory, in the process of `up`; not checked")
        return
    readiness.broker()
    yield ok("broker", "answers")
    queue_length = hub_stats.queue_length()
    yield grade(
        "queue",
        f"{queue_length} messages waiting",
        "Start more workers, or raise their --concurrency.",
        is_warning=queue_length > MAX_QUEUED_MESSAGES,
    )


def workers() -> Iterator[Finding]:
    """Check that workers process the queue."""
    if is_embedded():
        return
    inspect = current_app.control.inspect(timeout=WORKER_TIMEOUT_SECONDS)
    answers: Mapping[str, Any] = inspect.registered() or {}
    if not answers:
        yield problem(
            "workers",
            "no worker responds",
            "Background tools need a worker. Start one: celery -A mcphub worker --pool threads --concurrency 8.",
        )
        return
    yield ok("workers", f"{len(answers)} available: {', '.join(sorted(answers))}")
    without_task = sorted(name for name, tasks in answers.items() if run_call.name not in tasks)
    yield grade(
        "worker tasks",
        f"{', '.join(without_task)} do not know {run_call.name}" if without_task else "all know the hub's tasks",
        "Start workers with `celery -A mcphub worker`, and use separate queues for other applications.",
        is_problem=bool(without_task),
    )
    replies = current_app.control.broadcast(CODE, reply=True, timeout=WORKER_TIMEOUT_SECONDS)
    digests = {name: digest for reply in replies or () for name, digest in reply.items()}
    own_digest = code_digest()
    outdated = sorted(name for name, digest in digests.items() if digest != own_digest)
    yield grade(
        "worker code",
        f"{', '.join(outdated)} run a different version of the code" if outdated else "the same as in this process",
        "Restart these workers, or deploy the same version to all.",
        is_warning=bool(outdated),
    )


def queued_calls() -> Iterator[Finding]:
    """Check for background calls that were not started."""
    oldest = RunningCall.objects.filter(status=CallStatus.QUEUED).order_by("changed_at").first()
    seconds = (timezone.now() - oldest.changed_at).total_seconds() if oldest else 0.0
    yield grade(
        "queued calls",
        f"the oldest has waited for {seconds:.0f} seconds" if oldest else "none waiting",
        "Check the workers: they are busy, or do not consume this queue (MCPHUB_PREFIX).",
        is_warning=seconds > MAX_QUEUED_SECONDS,
    )
