"""What the newcomers' suite says of the audit log and the admin on SQLite holds on PostgreSQL too."""

import subprocess
import sys

import pytest

from tests.services.stack import ROOT, Stack

# One run of all: each would migrate a database for each of its processes.
PARTS = ["tests/audit", "tests/admin", "tests/api", "tests/wire/test_unstorable_text.py"]
LIMIT_SECONDS = 1500.0


@pytest.mark.timeout(LIMIT_SECONDS + 10)
def test_the_same_holds_on_postgresql(stack: Stack) -> None:
    options = ["--quiet", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not slow or postgresql"]
    command = [sys.executable, "-m", "pytest", *options, *PARTS]
    # The database alone is another one: the newcomers' suite has no Redis.
    environment = {name: value for name, value in stack.environment.items() if name != "REDIS_URL"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
