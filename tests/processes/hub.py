"""`manage.py` in processes of its own, with its own data directory."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Empty, Queue

import pytest
from django.db import connection

from tools_app.server.base import SERVERS

ROOT = Path(__file__).resolve().parents[2]
# A start takes about three seconds of one core, and a machine under load shares its cores among many.
WAIT_SECONDS = 120.0
LAST_LINE = "Press Ctrl-C to stop."
Connect = Callable[[], socket.socket]


class Up:
    """A `manage.py up` that listens."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", "0", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.banner = self._wait_for(LAST_LINE)
        self.url = re.search(r"(http://\S+)/mcp", self.banner)[1]

    def send(self, what: signal.Signals) -> None:
        self._process.send_signal(what)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> tuple[int, str]:
        """Wait for the end, and return the exit code and stderr."""
        code = self._process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        with self._process:
            return code, self._process.stderr.read()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self.wait()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)

    def _wait_for(self, last: str) -> str:
        output = ""
        while last not in output:
            try:
                output += self._lines.get(timeout=WAIT_SECONDS)
            except Empty:
                self._process.kill()
                pytest.fail(f"up did not start; its output is {output!r}, then {self.wait()}")
        return output


def environment_of(data: Path) -> dict[str, str]:
    """The variables of this process without those of the hub, so that nothing of the machine leaks in."""
    hub_variables = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(hub_variables)}
    return variables | {"MCPHUB_DATA_DIR": str(data)}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a hub with a data directory of the test's own."""
    return environment_of(tmp_path / "data")


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """Each ASGI server in turn."""
    return request.param


def copy_database(path: Path) -> Path | None:
    """Write the test database of this process to a file, if it is SQLite.

    If no test needs it, as when a few are chosen, there is none, and the connection leads to the hub's own.
    """
    names = connection.settings_dict
    if connection.vendor != "sqlite" or names["NAME"] != names["TEST"]["NAME"]:
        return None
    connection.ensure_connection()
    with closing(sqlite3.connect(path)) as copy:
        connection.connection.backup(copy)
    return path


@pytest.fixture(scope="session")
def migrated(django_db_setup: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all its tables and no rows of the hub's."""
    if django_db_setup is not None:
        return django_db_setup
    place = tmp_path_factory.mktemp("migrated")
    settings = {"MCPHUB_DATA_DIR": str(place), "PATH": os.environ["PATH"]}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=ROOT, env=settings, check=True, timeout=WAIT_SECONDS)
    return place / "hub.sqlite3"


@pytest.fixture
def up(request: pytest.FixtureRequest, environment: dict[str, str], migrated: Path) -> Iterator[Callable[..., Up]]:
    """Start hubs that end with the test: `up("--no-demo", MCPHUB_ADMIN_PASSWORD="...")`.

    They run on the default server; a test that uses `server` runs on each. Creating the tables takes most of a hub's
    start, so they exist already.
    """
    started = []
    data = Path(environment["MCPHUB_DATA_DIR"])
    chosen = ["--server", request.getfixturevalue("server")] if "server" in request.fixturenames else []

    def start(*arguments: str, **variables: str) -> Up:
        if not data.exists():
            data.mkdir(mode=0o700)
            shutil.copy(migrated, data)
        started.append(Up([*chosen, *arguments], environment | variables))
        return started[-1]

    yield start
    for hub in started:
        hub.kill()


def run_to_end(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )


@pytest.fixture
def manage(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command to its end: `manage("issue_key", "--tenant", "demo")`."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_to_end([sys.executable, "manage.py", *arguments], environment | variables)

    return run


# Each command runs in a copy of a process that has loaded the hub: to load it takes longer than what is tested.
EACH_COMMAND = """
import json, os, runpy, sys, tempfile
import django

os.environ["DJANGO_SETTINGS_MODULE"] = "mcphub.settings"
django.setup()
import mcphub.urls
ends = []
for arguments in json.loads(sys.argv[1]):
    files = [tempfile.TemporaryFile("w+") for _ in range(2)]
    child = os.fork()
    if not child:
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        sys.argv = ["manage.py", *arguments]
        runpy.run_path("manage.py", run_name="__main__")
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ends.append((code, *(os.pread(file.fileno(), 100_000, 0).decode() for file in files)))
print(json.dumps(ends))
"""


def run_each(
    commands: list[list[str]], environment: dict[str, str], files: tuple[int, ...] = ()
) -> list[tuple[int, str, str]]:
    """Run commands of `manage.py` to their ends, and return the exit code, stdout and stderr of each.

    They have one environment, and inherit `files`, by their descriptors.
    """
    result = subprocess.run(
        [sys.executable, "-c", EACH_COMMAND, json.dumps(commands)],
        cwd=ROOT,
        env=environment,
        pass_fds=files,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [(code, out, err) for code, out, err in json.loads(result.stdout)]


@contextmanager
def listening(program: str, name: str) -> Iterator[Connect]:
    """Connects to a server of this name in a process of its own: Twisted's reactor runs once in a process.

    `program` is given the class of the server, and prints the port.
    """
    command = [sys.executable, "-c", program, f"tools_app.server.{name}.{name.capitalize()}Server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        yield lambda: socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
        server.kill()
