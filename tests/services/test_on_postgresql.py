"""Tests whose outcome may depend on the database, run on PostgreSQL."""

import subprocess
import sys

import pytest

from tests.services.stack import ROOT, Stack

# One run for all: each run would migrate a database for each of its processes. These write with several transactions
# at once, read with SQL or locks that differ between databases, or visit every page.
CALLS = "calls_list cancelling_calls failures live_tail"
PAGES = "conflicts races search unstorable_text"
PARTS = [
    "tests/audit",
    "tests/audit/admin",
    *(f"--ignore=tests/audit/test_{name}.py" for name in ("csv", "redaction", "witness_forwarding")),
    *(f"tests/calls/admin/test_{name}.py" for name in CALLS.split()),
    "tests/calls/api",
    *(f"tests/web/admin/test_{name}.py" for name in PAGES.split()),
    "tests/web/test_filters.py",
    "tests/web/test_unstorable_text.py",
    "tests/wire/test_unstorable_text.py",
]
LIMIT_SECONDS = 1500.0


@pytest.mark.timeout(LIMIT_SECONDS + 10)
def test_the_same_holds_on_postgresql(stack: Stack) -> None:
    options = ["--quiet", "-n", "2", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not slow or postgresql"]
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
