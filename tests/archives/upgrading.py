"""Helpers of the upgrade tests: unpacking, migrating and using an archived database."""

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
    """Unpack the archived database."""
    return lzma.decompress((HERE / f"{version}.{ending}.xz").read_bytes())


def used(version: str, ending: str, **environment: str) -> dict[str, Any]:
    """The output of `tests.archives.use` for the database in `environment`."""
    keys = json.loads((HERE / f"{version}.{ending}.json").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "tests.archives.use", keys["call"], keys["key"]],
        cwd=ROOT,
        env=_clean()
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


def assert_sign_in_is_there(**environment: str) -> None:
    """Stored sign-ins survive the upgrade: refresh tokens require the authentication with which they were issued."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.archives.sign_in"],
        cwd=ROOT,
        env=_clean() | environment | {"DJANGO_SETTINGS_MODULE": "mcphub.settings"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "bound": {"none": False, "client_secret_post": True, "private_key_jwt": True},
        "methods": {
            "none": ["none"],
            "client_secret_post": ["client_secret_basic", "client_secret_post"],
            "private_key_jwt": ["private_key_jwt"],
        },
        "valid": [True, True, True],
        "signed in": True,
    }


def migrated_one_by_one(home: Path, **environment: str) -> None:
    """Migrate a new database with the individual migrations, as older versions did."""
    migrated(**one_by_one(home), **environment)


def one_by_one(home: Path) -> dict[str, str]:
    """The environment of a process without the squashed migration, which runs each of the replaced ones."""
    landed = home / "landed"
    landed.mkdir()
    for path in (ROOT / "tools_app" / "migrations").glob("*.py"):
        if "_squashed_" not in path.name:
            (landed / path.name).write_bytes(path.read_bytes())
    settings = 'from mcphub.settings import *\nMIGRATION_MODULES = {"tools_app": "landed"}\n'
    (home / "one_by_one.py").write_text(settings)
    return {"PYTHONPATH": str(home), "DJANGO_SETTINGS_MODULE": "one_by_one"}


def migrated(**environment: str) -> None:
    """Migrate the database in `environment`."""
    command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
    subprocess.run(command, cwd=ROOT, env=_clean() | environment, timeout=WAIT_SECONDS, check=True)


def _clean() -> dict[str, str]:
    """The environment of this process without the hub's variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


def assert_all_is_there(found: dict[str, Any]) -> None:
    """An upgraded hub has all its rows, uses them, and verifies without findings."""
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
    responses = found["responses"]
    assert {"ask", "ask_as_task", "count", "echo", "search", "slow", "test_throw"} == set(responses["tools"])
    assert (responses["old era"], responses["new era"], responses["nobody"]) == ("hello again", "hello again", 401)
    assert responses["resource"] == "Read me."
    assert responses["prompt"]["messages"][0]["content"]["text"] == "Greet Ada."
