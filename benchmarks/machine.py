"""On what was measured: the machine and the versions of all that takes part."""

import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psycopg
import redis

from benchmarks.plan import Plan

PACKAGES = ("mcphub", "mcp", "uvicorn", "uvloop", "httptools", "daphne", "django", "channels", "celery", "psycopg")


def facts(plan: Plan) -> list[tuple[str, str]]:
    """Names and values, in the order in which they are shown."""
    return [
        ("processor", f"{_processor()}, {os.cpu_count()} cores"),
        ("memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"),
        ("system", f"{_distribution()}, Linux {platform.release()}"),
        ("Python", platform.python_version()),
        *((name, metadata.version(name)) for name in PACKAGES),
        *_servers(plan),
        ("wrk", _wrk()),
    ]


def _servers(plan: Plan) -> list[tuple[str, str]]:
    """The database and Redis, where they answer."""
    servers = []
    with suppress(psycopg.Error), psycopg.connect(plan.database_url, connect_timeout=2) as connection:
        row = connection.execute("SHOW server_version").fetchone()
        servers.append(("PostgreSQL", str(row[0]).split()[0] if row else "?"))
    with suppress(redis.RedisError), redis.Redis.from_url(plan.redis_url, socket_timeout=2) as server:
        servers.append(("Redis", str(server.info("server")["redis_version"])))
    return servers


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _distribution() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return platform.system()


def _wrk() -> str:
    """The version of wrk, which fails when it has told it."""
    result = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False)
    return (result.stdout + result.stderr).split("[")[0].removeprefix("wrk ").strip()
