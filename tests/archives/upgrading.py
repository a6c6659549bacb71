"""Upgrades of archived databases."""

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Each is in the archive for both databases; `tests.archives.make` adds one.
VERSIONS = ("0001",)
WAIT_SECONDS = 100.0
FOREIGN = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")


def unpacked(version: str, ending: str) -> bytes:
    """Unpack the archived database."""
    return lzma.decompress((HERE / f"{version}.{ending}.xz").read_bytes())


def run(*command: str, **environment: str) -> str:
    """The output of a program with the variables of this process and these instead of the hub's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_upgraded(version: str, ending: str, **environment: str) -> None:
    """The archived database in `environment` is migrated; its hub has all its rows, uses them, and verifies."""
    keys = json.loads((HERE / f"{version}.{ending}.json").read_text())
    output = run(
        *("-m", "tests.archives.use", keys["call"], keys["key"]),
        DJANGO_SETTINGS_MODULE="mcphub.settings",
        MCPHUB_SECRET_KEY=keys["secret_key"],
        MCPHUB_AUDIT_KEY=keys["audit_key"],
        MCPHUB_APPS="tests.services.stubborn,tests.archives",
        **environment,
    )
    assert json.loads(output.splitlines()[-1]) == {
        "tables with fewer rows": [],
        "verified": "No problems found.",
        "call": 200,
        "its result": True,
        "calls": 200,
        "packed": True,
        "secret": "the secret of the archive",
        "tools": ["ask", "ask_as_task", "count", "echo", "search", "slow", "test_throw"],
        "handshake": "hello again",
        "modern": "hello again",
        "resource": "Read me.",
        "prompt": "Greet Ada.",
        "nobody": 401,
        "verified again": "No problems found.",
    }
