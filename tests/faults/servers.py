"""PostgreSQL and Redis servers that belong to a test, on free ports, so that it can stop them."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import redis

from tests.services.stack import eventually, free_port

START_SECONDS = 60.0


def _postgres_program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    assert found, "PostgreSQL's server programs are missing: `.ci/run` installs them"
    return str(found[-1])


def _runs_as() -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


@dataclass
class OwnPostgres:
    """A cluster in its own directory `home`, with one superuser without a password."""

    home: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        """Make the cluster and start it."""
        if os.geteuid() == 0:
            shutil.chown(self.home, "postgres")
        initdb = [_postgres_program("initdb"), "--auth=trust", "--username=postgres", "-D", str(self.home / "data")]
        subprocess.run([*_runs_as(), *initdb], check=True, capture_output=True, cwd="/")
        self.start()

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        options = f"-h 127.0.0.1 -p {self.port} -k {self.home} -c max_connections=200"
        self._control("-w", "-l", str(self.home / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop it as a crash would: connections break, and nothing is cleaned up."""
        self._control("-w", "-m", "immediate", "stop")

    def freeze(self) -> None:
        """Stop all of its processes: connections stay open, responses do not come."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue its processes."""
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        postmaster = int((self.home / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, what)
        for child in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), what)

    def _control(self, *arguments: str) -> None:
        command = [*_runs_as(), _postgres_program("pg_ctl"), "-D", str(self.home / "data"), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=START_SECONDS * 2)

    def set_read_only(self, read_only: bool) -> None:
        """Reject every write, on open connections too, or accept them again."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if read_only else 'off'}")
            connection.execute("SELECT pg_reload_conf()")

    def create_database(self, name: str) -> str:
        """Create a database, and return its URL."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"{self.url.rpartition('/')[0]}/{name}"


@dataclass
class OwnRedis:
    """A server without persistence: its data is lost when it stops."""

    home: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> "redis.Redis":
        """A connection of the test's own."""
        return redis.Redis(port=self.port, socket_timeout=2)

    def start(self) -> None:
        """Start it, empty, and return when it responds."""
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--dir", self.home]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        eventually(self._answers, START_SECONDS)

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)

    def freeze(self) -> None:
        """Stop its process: connections stay open, responses do not come."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue its process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self, away_seconds: float) -> None:
        """Stop it for a while, and start it again, empty."""
        self.stop()
        time.sleep(away_seconds)
        self.start()

    def _answers(self) -> bool:
        try:
            with self.client as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False
