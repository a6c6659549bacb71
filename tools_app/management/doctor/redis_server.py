"""Redis: reachable, new enough, not forgetful, and near."""

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

from django.conf import settings

from tools_app.management.doctor.findings import Finding, judged, ok, warning

PINGS = 5
SECONDS = 2.0
SLOW_SECONDS = 0.02
OLDEST = 6
NEARLY_FULL = 0.9
SCHEMES = ("redis:", "rediss:", "unix:")


def servers() -> Iterator[Finding]:
    """Each Redis that the settings name."""
    urls = dict.fromkeys(url for url in (settings.REDIS_URL, settings.CELERY_BROKER_URL) if url.startswith(SCHEMES))
    for number, url in enumerate(urls):
        yield from _server("redis" if number == 0 else "redis (broker)", url)


def _server(about: str, url: str) -> Iterator[Finding]:
    # Not at the top: the embedded hub does without the extra.
    from redis import Redis  # noqa: PLC0415

    with Redis.from_url(url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS) as server:
        taken = [_ping(server) for _ in range(PINGS)]
        told: dict[str, Any] = dict(server.info())
    latency = median(taken)
    yield judged(
        about,
        f"version {told['redis_version']} answers in {latency * 1000:.1f} ms",
        f"Use Redis {OLDEST} or newer, near to the hub: limits and doorbells wait for it.",
        bad=int(str(told["redis_version"]).split(".")[0]) < OLDEST,
        doubtful=latency > SLOW_SECONDS,
    )
    yield from _memory(about, told)


def _ping(server: Any) -> float:
    began = perf_counter()
    server.ping()
    return perf_counter() - began


def _memory(about: str, told: dict[str, Any]) -> Iterator[Finding]:
    most, used, policy = int(told.get("maxmemory", 0)), int(told["used_memory"]), told.get("maxmemory_policy", "")
    yield judged(
        f"{about} memory",
        f"{used / 2**20:.0f} MiB of {f'{most / 2**20:.0f} MiB' if most else 'no limit'}, policy {policy}",
        "Set maxmemory-policy noeviction: with any other, queued calls and limits disappear when memory is short.",
        bad=bool(policy) and policy != "noeviction",
    )
    if most and used > most * NEARLY_FULL:
        yield warning(
            f"{about} memory", "nearly full", "Raise maxmemory, and see what else fills this Redis (redis-cli info)."
        )
    kept = told.get("aof_enabled") or told.get("rdb_last_bgsave_status") == "ok"
    if not kept:
        yield warning(f"{about} persistence", "its last save failed", "See its log: queued messages may be lost.")
    else:
        yield ok(f"{about} persistence", "append-only file" if told.get("aof_enabled") else "snapshots")
