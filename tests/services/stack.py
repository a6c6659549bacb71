"""A hub at scale: separate web processes and Celery workers, on PostgreSQL and Redis.

Each process leads a process group, so that it can be killed with its children. Its output goes to a file that is shown
if a test fails.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg

from tests.services.commands import CommandServer

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 60.0
# On a busy machine: a supervisor starts three processes, and the first command migrates a database.
START_SECONDS = 120.0
COMMAND_SECONDS = 120.0
POLL_SECONDS = 0.05
BANNER_END = "Press Ctrl-C to stop."
WEB_COMMANDS = {
    server: ["django", "up", "--no-demo", "--no-worker", "--port", "{port}", "--server", server]
    for server in ("daphne", "uvicorn")
}
WEB_COMMANDS["uvicorn by hand"] = ["uvicorn", "mcphub.asgi:application", "--port", "{port}", "--log-level", "warning"]
# Without this option, workers use Celery's pool of processes.
THREADS = ("--pool", "threads")
WORKER_COMMAND = ["celery", "-A", "mcphub", "worker", "--concurrency", "2", "--loglevel", "WARNING"]


def eventually(condition: Callable[[], T], within: float = WAIT_SECONDS) -> T:
    """Call until the result is true, for a bounded time, and return it."""
    deadline = time.monotonic() + within
    while not (result := condition()):
        assert time.monotonic() < deadline, f"still {result!r} after {within} seconds"
        time.sleep(POLL_SECONDS)
    return result


@dataclass
class Running:
    """One process of the hub and its children."""

    command: list[str]
    environment: dict[str, str]
    log: Path
    url: str = ""
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.command],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal(self, what: signal.Signals) -> None:
        """Signal the process alone."""
        self.process.send_signal(what)

    def terminate(self) -> int:
        """Send SIGTERM and wait; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """Kill it and its children with SIGKILL."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self.process.wait(WAIT_SECONDS)

    def output(self) -> str:
        """Its whole output."""
        return self.log.read_text(errors="replace")


@dataclass
class Stack:
    """A separate database and queue, and the processes that a test starts on them."""

    database_url: str
    environment: dict[str, str]
    logs: Path
    key: str = ""
    started: list[Running] = field(default_factory=list)
    commands: CommandServer | None = field(default=None, init=False)

    def web(self, server: str, port: int | None = None, processes: int = 0) -> Running:
        """Start a web process on `port` or a free one, and wait for it; with `processes`, a supervisor of that many."""
        web = self._start_web(server, port, processes)
        eventually(lambda: _is_ready(web) and (not processes or BANNER_END in web.output()), START_SECONDS)
        return web

    def webs(self, *servers: str) -> list[Running]:
        """Start web processes at the same time, and wait for them."""
        webs = [self._start_web(server) for server in servers]
        eventually(lambda: all(map(_is_ready, webs)), START_SECONDS)
        return webs

    def worker(self, *options: str) -> Running:
        """Start a Celery worker. A call that finishes shows that it works."""
        return self._start([*WORKER_COMMAND, "--hostname", f"worker{len(self.started)}@%h", *options])

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a management command in its own process."""
        if self.commands is None or self.commands.environment != self.environment:
            self._stop_commands()
            self.commands = CommandServer(dict(self.environment))
        return self.commands.run(arguments, COMMAND_SECONDS)

    def manage(self, *arguments: str) -> str:
        """Run a management command that succeeds; return its output."""
        result = self.run(*arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def shell(self, code: str) -> str:
        """Run Python code with access to the models, in another process of the hub."""
        return self.manage("shell", "--no-imports", "-c", code)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Query the database directly."""
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query, values).fetchall()

    def execute(self, statement: str, *values: Any) -> None:
        """Change the database directly."""
        with psycopg.connect(self.database_url) as connection:
            connection.execute(statement, values)

    def end(self) -> None:
        """Kill every started process and print its output."""
        self._stop_commands()
        for running in self.started:
            running.kill()
            sys.stdout.write(f"--- {' '.join(running.command)}\n{running.output()}\n")

    def _stop_commands(self) -> None:
        if self.commands is not None:
            self.commands.stop()
            self.commands = None

    def _start_web(self, server: str, port: int | None = None, processes: int = 0) -> Running:
        port = port or free_port()
        command = [part.format(port=port) for part in WEB_COMMANDS[server]]
        command += ["--processes", str(processes)] if processes else []
        return self._start(command, f"http://127.0.0.1:{port}")

    def _start(self, command: list[str], url: str = "") -> Running:
        self.started.append(Running(command, self.environment, self.logs / f"{len(self.started)}.log", url))
        return self.started[-1]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_ready(web: Running) -> bool:
    assert web.process.poll() is None, web.output()
    try:
        return httpx.get(f"{web.url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
