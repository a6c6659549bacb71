"""`manage.py up` without other servers, on SQLite, for tests that fill its disk."""

import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.hub import FOREIGN, PROCESS_TIMEOUT, SEED
from tests.services.stack import ROOT, WAIT_SECONDS


@dataclass
class Embedded:
    """A running hub, its key, and its database, with the interface of a hub at scale."""

    data: Path
    url: str
    key: str
    process: subprocess.Popen[str]

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query on a connection of its own."""
        with closing(sqlite3.connect(f"file:{self.data}/hub.sqlite3?mode=ro", uri=True, timeout=10)) as connection:
            return connection.execute(query.replace("%s", "?"), values).fetchall()


@contextmanager
def embedded(data: Path) -> Iterator[Embedded]:
    """A hub with the tools of the load, which stops with the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    environment |= {"MCPHUB_DATA_DIR": str(data), "MCPHUB_PROCESS_TIMEOUT": str(PROCESS_TIMEOUT)}
    environment |= {"MCPHUB_APPS": "tests.faults.toil"}

    def manage(*arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        process_result = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return process_result.stdout.strip()

    manage("migrate", "--verbosity", "0")
    manage("shell", "--no-imports", "-c", SEED)
    key = manage("issue_key", "--tenant", "demo", "--name", "test")
    log = data.parent / "up.log"
    with log.open("w") as log_file:
        command = [sys.executable, "manage.py", "up", "--no-demo", "--port", "0"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log_file, stderr=log_file, text=True)
    try:
        yield Embedded(data, _url(log, process), key, process)
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)
        sys.stdout.write(log.read_text())


def _url(log: Path, process: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := re.search(r"(http://\S+/mcp)", log.read_text())):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return found[1]
