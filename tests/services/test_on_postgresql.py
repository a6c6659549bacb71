"""What the newcomers' suite says of the audit log and the admin on SQLite holds on PostgreSQL too."""

import subprocess
import sys

import pytest

from tests.services.stack import ROOT, Stack

LIMIT_SECONDS = 240.0


@pytest.mark.timeout(LIMIT_SECONDS + 10)
@pytest.mark.parametrize("part", ["tests/audit", "tests/admin", "tests/api"])
def test_the_same_holds_on_postgresql(stack: Stack, part: str) -> None:
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:randomly", "-p", "no:cacheprovider", part]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
