"""The tests of the audit log and the admin, run on PostgreSQL."""

import subprocess
import sys

import pytest

from tests.services.stack import ROOT, Stack

# One run for all: each run would migrate a database for each of its processes.
PARTS = ["tests/audit", "tests/admin", "tests/api", "tests/wire/test_unstorable_text.py"]
LIMIT_SECONDS = 1500.0


@pytest.mark.timeout(LIMIT_SECONDS + 10)
def test_the_same_holds_on_postgresql(stack: Stack) -> None:
    options = ["--quiet", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not slow or postgresql"]
    command = [sys.executable, "-m", "pytest", *options, *PARTS]
    # Only the database differs: the default suite has no Redis.
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
