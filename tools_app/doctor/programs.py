"""Checks of the isolation of stdio upstreams: what the kernel offers, and what a program can reach from here."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import orjson
from django.conf import settings
from django.db import connection

from tools_app.doctor.findings import Finding, grade, problem
from tools_app.models import Upstream, UpstreamTransport
from tools_app.upstreams import stdio
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.isolation import cgroups, launcher, probe

PROBE: Final = Path(probe.__file__)
PROBE_SECONDS: Final = 60.0
Target = tuple[str, str, str | tuple[str, int]]
# What answers on loopback, often without a password.
PORTS: Final = {
    "PostgreSQL": 5432,
    "MySQL": 3306,
    "Redis": 6379,
    "RabbitMQ": 5672,
    "MongoDB": 27017,
    "memcached": 11211,
    "Elasticsearch": 9200,
    "Docker": 2375,
}
SOCKETS: Final = (
    *("/run/postgresql/.s.PGSQL.5432", "/tmp/.s.PGSQL.5432", "/run/mysqld/mysqld.sock"),  # noqa: S108 - PostgreSQL's own
    *("/run/redis/redis-server.sock", "/run/docker.sock", "/run/containerd/containerd.sock"),
    *("/run/dbus/system_bus_socket", "/run/systemd/private"),
)
METADATA: Final = ("169.254.169.254", 80)


def upstream_programs() -> Iterator[Finding]:
    """Tell how programs of upstreams are isolated. Control groups belong to the process that starts them."""
    version = launcher.landlock_version()
    try:
        groups = f"control groups below {cgroups.delegated()}"
    except cgroups.NotDelegated as missing:
        groups = f"no control groups from here: {missing}"
    landlock = f"Landlock (version {version})" if version else "no Landlock"
    seccomp = "seccomp" if launcher.has_seccomp() else "no seccomp"
    yield grade(
        "upstream programs",
        f"{landlock}, {seccomp}, resource limits, {groups}",
        "Use a kernel with Landlock (Linux 5.13 or newer) and seccomp, on x86-64 or ARM64: without Landlock, programs "
        "of upstreams can read all that the hub's user can; without seccomp, they can open UNIX sockets and send UDP.",
        is_warning=not (version and launcher.has_seccomp()) and _has_programs(),
    )


def upstream_reach() -> Iterator[Finding]:
    """Run a program as one of an upstream, which tries to reach databases, local services and the metadata service."""
    if not _has_programs():
        return
    try:
        reached = _reached(list(_targets()))
    except (OSError, subprocess.SubprocessError, UpstreamFailed) as failure:
        reason = f"{failure.message} {failure.cause}" if isinstance(failure, UpstreamFailed) else failure
        yield problem(
            "upstream reach", f"no program can be run in isolation: {reason}", "See docs/upstreams.md, Commands."
        )
        return
    yield grade(
        "upstream reach",
        f"programs can reach {', '.join(reached)}"
        if reached
        else "programs reach no database, local service or metadata service",
        "MCPHUB_UPSTREAM_NETWORK lets programs open any connection: give these services passwords, or refuse them to "
        "the hub's user in a firewall."
        if settings.MCPHUB_UPSTREAM_NETWORK
        else "Use a kernel with Landlock and seccomp, on x86-64 or ARM64.",
        is_warning=bool(reached),
    )


def _has_programs() -> bool:
    return Upstream.objects.filter(transport=UpstreamTransport.STDIO).exists()


def _targets() -> Iterator[Target]:
    for name, url in (("Redis of the hub", settings.REDIS_URL), ("the broker of the hub", settings.CELERY_BROKER_URL)):
        parts = urlsplit(url)
        if parts.hostname and parts.port:
            yield name, "tcp", (parts.hostname, parts.port)
    database = connection.settings_dict
    host, port = str(database.get("HOST") or ""), int(database.get("PORT") or PORTS["PostgreSQL"])
    if host.startswith("/"):
        yield "the database of the hub", "unix", f"{host}/.s.PGSQL.{port}"
    elif host:
        yield "the database of the hub", "tcp", (host, port)
    for name, number in PORTS.items():
        yield f"{name} on loopback", "tcp", ("127.0.0.1", number)
    for path in SOCKETS:
        yield path, "unix", path
    yield "loopback by UDP", "udp", ("127.0.0.1", 9)
    yield "the metadata service of the cloud", "tcp", METADATA


def _reached(targets: list[Target]) -> list[str]:
    """Return the names of the targets that a program reaches."""
    with TemporaryDirectory(prefix="mcphub-doctor-") as directory:
        specification = {
            "directory": directory,
            "readable": stdio.readable_paths(sys.executable, [sys.base_prefix, str(PROBE)]),
            "writable": [*stdio.WRITABLE, directory],
            "network": settings.MCPHUB_UPSTREAM_NETWORK,
            "cgroup": "",
        }
        completed = subprocess.run(  # noqa: S603 - the hub's own scripts
            [
                *(sys.executable, "-I", "-S", str(stdio.LAUNCHER), str(os.getpid())),
                *(orjson.dumps(specification).decode(), sys.executable, "-I", "-S", str(PROBE)),
                orjson.dumps(targets).decode(),
            ],
            env={launcher.ENVIRONMENT: "{}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    if completed.returncode:
        raise OSError(completed.stderr.strip()[-500:] or f"exit code {completed.returncode}")
    return completed.stdout.splitlines()
