"""`manage.py` as people run it: a process of its own, with a data directory of its own."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue

import pytest

from tools_app.management.servers import SERVERS

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 40.0
LAST_LINE = "Press Ctrl-C to stop."


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

    def ended(self) -> tuple[int, str]:
        """Wait for the end: the exit code and what stood on stderr."""
        code = self._process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        with self._process:
            return code, self._process.stderr.read()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self.ended()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)

    def _wait_for(self, last: str) -> str:
        said = ""
        while last not in said:
            try:
                said += self._lines.get(timeout=WAIT_SECONDS)
            except Empty:
                self._process.kill()
                pytest.fail(f"up did not start; it said {said!r} and {self.ended()}")
        return said


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The variables of this process without those of the hub, so that nothing of the machine leaks in."""
    foreign = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return clean | {"MCPHUB_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """Each ASGI server in turn."""
    return request.param


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all its tables and no rows of the hub's."""
    place = tmp_path_factory.mktemp("migrated")
    settings = {"MCPHUB_DATA_DIR": str(place), "PATH": os.environ["PATH"]}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=ROOT, env=settings, check=True, timeout=WAIT_SECONDS)
    return place / "hub.sqlite3"


@pytest.fixture
def up(environment: dict[str, str], server: str, migrated: Path) -> Iterator[Callable[..., Up]]:
    """Start hubs that end with the test: `up("--no-demo", MCPHUB_ADMIN_PASSWORD="...")`.

    To make the tables takes a hub longer than all else that it does when it starts: they are there already, unless a
    test wants to see them made (`bare`).
    """
    started = []
    data = Path(environment["MCPHUB_DATA_DIR"])

    def start(*arguments: str, bare: bool = False, **variables: str) -> Up:
        if not bare and not data.exists():
            data.mkdir(mode=0o700)
            shutil.copy(migrated, data)
        started.append(Up(["--server", server, *arguments], environment | variables))
        return started[-1]

    yield start
    for hub in started:
        hub.kill()


@pytest.fixture
def manage(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command to its end: `manage("issue_key", "--tenant", "demo")`."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )

    return run
