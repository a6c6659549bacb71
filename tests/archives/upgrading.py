"""What the tests of upgrades share: an archived database is taken out, migrated and used."""

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WAIT_SECONDS = 100.0
FOREIGN = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE")


def archives(ending: str) -> list[str]:
    """The versions that have an archive for this kind of database."""
    return sorted(path.name.partition(".")[0] for path in HERE.glob(f"*.{ending}.xz"))


def unpacked(version: str, ending: str) -> bytes:
    """The database as it was archived."""
    return lzma.decompress((HERE / f"{version}.{ending}.xz").read_bytes())


def used(version: str, ending: str, **environment: str) -> dict[str, Any]:
    """What `tests.archives.use` found in the database that `environment` names."""
    keys = json.loads((HERE / f"{version}.{ending}.json").read_text())
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.archives.use", keys["call"], keys["key"]],
        cwd=ROOT,
        env=clean
        | environment
        | {
            "DJANGO_SETTINGS_MODULE": "mcphub.settings",
            "MCPHUB_SECRET_KEY": keys["secret_key"],
            "MCPHUB_AUDIT_KEY": keys["audit_key"],
            "MCPHUB_APPS": "tests.services.stubborn,tests.archives",
        },
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def assert_all_is_there(found: dict[str, Any]) -> None:
    """An upgraded hub has all that it had, works with it, and raises no false alarm."""
    assert found["verified"] == "No problems found."
    assert found["verified again"] == "No problems found."
    assert found["pages"] == {
        "status": 200,
        "has its result": True,
        "list": 200,
        "outcomes": [
            "cancelled",
            "denied",
            "input_required",
            "interrupted",
            "lost",
            "ok",
            "rejected",
            "timeout",
            "tool_error",
        ],
        "packed": True,
        "secret": "the secret of the archive",
        "revisions": 2,
        "kept": True,
    }
    asked = found["asked"]
    assert {"ask", "ask_as_task", "count", "echo", "search", "slow", "test_throw"} == set(asked["tools"])
    assert (asked["old era"], asked["new era"], asked["nobody"]) == ("hello again", "hello again", 401)
    assert asked["resource"] == "Read me."
    assert asked["prompt"]["messages"][0]["content"]["text"] == "Greet Ada."
