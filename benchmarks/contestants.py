"""Who is measured: the command of each server, the environment it needs, and its name in the tables."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from benchmarks.hub import PROJECT, Hub
from benchmarks.workloads import LIST, Workload

FASTMCP = "4.1.6"
FASTMCP_PYTHON = "FASTMCP_PYTHON"
UVICORN = ["-m", "uvicorn", "--port", "PORT", "--log-level", "warning", "--no-access-log"]
UP = ["manage.py", "up", "--no-demo", "--port", "PORT"]


class NotInstalled(Exception):
    """A contestant cannot be installed here; the text says why."""


@dataclass(frozen=True)
class Contestant:
    """A server: how to start it, and whose hub it is, if it is one. `is_base` marks the one others are compared to."""

    label: str
    command: list[str]
    environment: Mapping[str, str]
    hub: Hub | None = None
    is_base: bool = False

    def key_for(self, workload: Workload) -> str:
        """The key with which to ask for `workload`; the others take no notice of it."""
        if self.hub is None:
            return "none"
        return self.hub.many_key if workload is LIST else self.hub.key


def bare(application: str) -> Contestant:
    """A canned answer of `benchmarks.servers.bare` behind uvicorn."""
    return _other("bare ASGI, uvicorn", sys.executable, f"benchmarks.servers.bare:{application}")


def sdk(application: str) -> Contestant:
    """The official SDK's server."""
    label = f"mcp {metadata.version('mcp')}, uvicorn"
    return _other(label, sys.executable, f"benchmarks.servers.sdk:{application}", is_base=True)


def fastmcp(application: str, python: str) -> Contestant:
    """FastMCP, in the environment of `python`."""
    return _other(f"fastmcp {FASTMCP}, uvicorn", python, f"benchmarks.servers.fastmcp_server:{application}")


def fast_upstream() -> Contestant:
    """A server that is called through others."""
    return _other("fast upstream, uvicorn", sys.executable, "benchmarks.servers.fast_upstream:app")


def fastmcp_proxy(url: str, python: str) -> Contestant:
    """FastMCP's proxy of the server at `url`, in the environment of `python`."""
    one = _other(f"fastmcp {FASTMCP}, uvicorn", python, "benchmarks.servers.fastmcp_proxy:app")
    return replace(one, environment={**one.environment, "UPSTREAM_URL": url})


def hub_on_uvicorn(hub: Hub) -> Contestant:
    """The hub."""
    return _delivered("mcphub, uvicorn", hub, "uvicorn")


def hub_on_daphne(hub: Hub) -> Contestant:
    """The hub behind the server that it brings along."""
    return _delivered("mcphub, Daphne", hub, "daphne")


def python_with_fastmcp(folder: Path) -> str:
    """A Python that has FastMCP: FASTMCP_PYTHON, or an environment made in `folder`. Raises NotInstalled."""
    python = os.environ.get(FASTMCP_PYTHON, "")
    if not python:
        environment = folder / f"fastmcp-{FASTMCP}"
        python = str(environment / "bin" / "python")
        _run([sys.executable, "-m", "venv", str(environment)])
        same = [f"{name}=={metadata.version(name)}" for name in ("mcp", "uvicorn", "uvloop", "httptools")]
        _run([python, "-m", "pip", "install", "-q", f"fastmcp=={FASTMCP}", *same])
    found = _run([python, "-c", "from importlib.metadata import version; print(version('fastmcp'))"])
    if found != FASTMCP:
        raise NotInstalled(f"{python} has fastmcp {found}, not {FASTMCP}")
    return python


def _delivered(label: str, hub: Hub, server: str) -> Contestant:
    """The hub as its users start it; with Redis, workers are processes of their own."""
    apart = ["--no-worker"] if "REDIS_URL" in hub.environment else []
    return Contestant(label, [sys.executable, *UP, "--server", server, *apart], hub.environment, hub)


def _other(label: str, python: str, application: str, *, is_base: bool = False) -> Contestant:
    return Contestant(label, [python, *UVICORN, application], os.environ, is_base=is_base)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip()
