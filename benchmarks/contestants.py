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

FASTMCP = "4.2.3"
FASTMCP_PYTHON = "FASTMCP_PYTHON"
# The last version with a package for tasks.
FASTMCP_TASKS = "4.1.4"
FASTMCP_TASKS_PYTHON = "FASTMCP_TASKS_PYTHON"
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
    return _python_contestant("bare ASGI, uvicorn", sys.executable, f"benchmarks.servers.bare:{application}")


def sdk(application: str) -> Contestant:
    """The official SDK's server."""
    label = f"mcp {metadata.version('mcp')}, uvicorn"
    return _python_contestant(label, sys.executable, f"benchmarks.servers.sdk:{application}", is_base=True)


def fastmcp(application: str, python: str) -> Contestant:
    """FastMCP, in the environment of `python`."""
    return _python_contestant(f"fastmcp {FASTMCP}, uvicorn", python, f"benchmarks.servers.fastmcp_server:{application}")


def fast_upstream() -> Contestant:
    """A server that is called through others."""
    return _python_contestant("fast upstream, uvicorn", sys.executable, "benchmarks.servers.fast_upstream:app")


def fastmcp_proxy(url: str, python: str) -> Contestant:
    """FastMCP's proxy of the server at `url`, in the environment of `python`."""
    contestant = _python_contestant(f"fastmcp {FASTMCP}, uvicorn", python, "benchmarks.servers.fastmcp_proxy:app")
    return replace(contestant, environment={**contestant.environment, "UPSTREAM_URL": url})


def fastmcp_tasks(redis_url: str, name: str, python: str) -> Contestant:
    """FastMCP with Docket's queue of this name in Redis, in the environment of `python`."""
    label = f"fastmcp {FASTMCP_TASKS}, Docket, Redis"
    contestant = _python_contestant(label, python, "benchmarks.servers.fastmcp_tasks:app")
    docket = {"FASTMCP_DOCKET_URL": redis_url, "FASTMCP_DOCKET_NAME": name, "FASTMCP_DOCKET_CONCURRENCY": "16"}
    return replace(contestant, environment={**contestant.environment, **docket})


def hub_on_uvicorn(hub: Hub) -> Contestant:
    """The hub."""
    return _hub_contestant("mcphub, uvicorn", hub, "uvicorn")


def hub_on_daphne(hub: Hub) -> Contestant:
    """The hub behind the server that it brings along."""
    return _hub_contestant("mcphub, Daphne", hub, "daphne")


def python_with_fastmcp(folder: Path) -> str:
    """A Python that has FastMCP: FASTMCP_PYTHON, or an environment made in `folder`. Raises NotInstalled."""
    return _python_with("fastmcp", FASTMCP, os.environ.get(FASTMCP_PYTHON, ""), folder)


def python_with_fastmcp_tasks(folder: Path) -> str:
    """The same for its tasks, which are a package of their own: FASTMCP_TASKS_PYTHON, or an environment."""
    return _python_with("fastmcp-tasks", FASTMCP_TASKS, os.environ.get(FASTMCP_TASKS_PYTHON, ""), folder)


def _python_with(package: str, version: str, python: str, folder: Path) -> str:
    if not python:
        environment = folder / f"{package}-{version}"
        python = str(environment / "bin" / "python")
        _run([sys.executable, "-m", "venv", str(environment)])
        pinned = [f"{name}=={metadata.version(name)}" for name in ("mcp", "uvicorn", "uvloop", "httptools")]
        _run([python, "-m", "pip", "install", "-q", f"fastmcp=={version}", f"{package}=={version}", *pinned])
    installed = _run([python, "-c", f"from importlib.metadata import version; print(version({package!r}))"])
    if installed != version:
        raise NotInstalled(f"{python} has {package} {installed}, not {version}")
    return python


def _hub_contestant(label: str, hub: Hub, server: str) -> Contestant:
    """The hub as its users start it; with Redis, workers are processes of their own."""
    worker_options = ["--no-worker"] if "REDIS_URL" in hub.environment else []
    return Contestant(label, [sys.executable, *UP, "--server", server, *worker_options], hub.environment, hub)


def _python_contestant(label: str, python: str, application: str, *, is_base: bool = False) -> Contestant:
    return Contestant(label, [python, *UVICORN, application], os.environ, is_base=is_base)


def _run(command: list[str]) -> str:
    result = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NotInstalled(result.stderr.strip().splitlines()[-1])
    return result.stdout.strip()
