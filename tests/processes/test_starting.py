"""Failed starts: each program of the hub prints one line, exits with an error code and prints no traceback."""

import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from tests.processes.hub import ROOT, run_to_end
from tools_app.server import startup_checks

Manage = Callable[..., "subprocess.CompletedProcess[str]"]

# Any text will do, or whatever is made of it.
FREE_TEXTS = {
    *(
        "MCPHUB_SECRET_KEY",
        "MCPHUB_SECRET_KEY_FALLBACKS",
        "MCPHUB_ADMIN_PASSWORD",
        "MCPHUB_DEMO_API_KEY",
        "MCPHUB_API_KEY",
    ),
    *("MCPHUB_PREFIX", "MCPHUB_METRICS_TOKEN"),
}
NONSENSE = {
    "MCPHUB_DATA_DIR": "/dev/null/hub",
    "MCPHUB_APPS": "there_is_no_such_app",
    "MCPHUB_ALLOWED_HOSTS": "https://hub.example",
    "MCPHUB_UPSTREAM_COMMANDS": "'unclosed",
}
ANY_NONSENSE = "-banana-"
SETTINGS = re.findall(r'env\.\w+\(\s*"(\w+)"', (ROOT / "mcphub/settings.py").read_text())

# Takes packages away, as if they had never been installed.
WITHOUT_PACKAGES = """
import importlib.machinery, os
find = importlib.machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    gone = name.partition(".")[0] in os.environ["WITHOUT"].split(",")
    return None if gone else find(name, path, target)
importlib.machinery.PathFinder.find_spec = find_spec
"""


@pytest.mark.parametrize("name", sorted(set(SETTINGS) - FREE_TEXTS))
def test_a_setting_that_makes_no_sense_is_named(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MCPHUB_DATA_DIR", str(tmp_path))
    monkeypatch.setenv(name, NONSENSE.get(name, ANY_NONSENSE))

    with pytest.raises(ImproperlyConfigured, match=rf"^{name}\b.*\.\Z"):
        runpy.run_path(str(ROOT / "mcphub/settings.py"))


@pytest.fixture
def without(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment of a Python that lacks packages: `without("redis")`."""

    def variables(*packages: str) -> dict[str, str]:
        (tmp_path / "sitecustomize.py").write_text(WITHOUT_PACKAGES)
        return {"PYTHONPATH": str(tmp_path), "WITHOUT": ",".join(packages)}

    return variables


def test_up_without_an_extra_says_how_to_get_it(manage: Manage, without: Any) -> None:
    ended = manage("up", REDIS_URL="redis://127.0.0.1:1/0", **without("redis", "channels_redis"))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "mcphub: REDIS_URL needs redis and channels_redis, which are not installed. Run pip install -e '.[redis]'.\n"
    )


@pytest.mark.parametrize(
    "program",
    [
        ["celery", "-A", "mcphub", "worker", "--pool", "threads"],
        ["daphne", "--port", "0", "mcphub.asgi:application"],
        ["uvicorn", "--port", "0", "mcphub.asgi:application"],
    ],
    ids=lambda program: program[0],
)
def test_the_other_programs_say_it_as_well(program: list[str], environment: dict[str, str], without: Any) -> None:
    variables = {"DATABASE_URL": "postgres://hub:hush@127.0.0.1:1/hub", **without("psycopg")}
    command = [str(Path(sys.executable).with_name(program[0])), *program[1:]]
    done = run_to_end(command, environment | variables)

    assert done.returncode != 0
    assert done.stderr == (
        "mcphub: DATABASE_URL needs psycopg, which is not installed. Run pip install -e '.[postgres]'.\n"
    )


def test_a_worker_without_tables_says_how_to_make_them(environment: dict[str, str]) -> None:
    celery = [str(Path(sys.executable).with_name("celery")), "-A", "mcphub", "worker", "--pool", "threads"]
    done = run_to_end(celery, environment)

    assert done.returncode == 1
    assert done.stderr.endswith("this version of the hub. Run python manage.py migrate.\n")
    assert done.stderr.count("\n") == 1


def test_a_second_hub_on_the_same_data_is_refused_until_the_first_has_died(
    up: Any, manage: Manage, environment: dict[str, str]
) -> None:
    hub = up(MCPHUB_ALOWED_HOSTS="hub.example")
    refused = manage("up", "--port", "0")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert re.fullmatch(r"CommandError: Another hub \(process \d+\) already uses \S+\. Stop it, .+\n", refused.stderr)

    hub.send(signal.SIGKILL)
    _, stderr = hub.wait()
    startup_checks.lock_data(Path(environment["MCPHUB_DATA_DIR"]) / "hub.sqlite3").close()
    assert stderr.count("\n") == 1, stderr
    assert "MCPHUB_ALOWED_HOSTS is not a setting of the hub. Did you mean MCPHUB_ALLOWED_HOSTS?" in stderr
