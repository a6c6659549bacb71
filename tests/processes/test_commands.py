"""Commands in processes of their own: exit codes and output, as scripts see them."""

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.utils import timezone

from tests.processes.hub import copy_database
from tools_app.models import Call

Manage = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.django_db(transaction=True)
def test_the_exit_code_of_verify_audit_tells_a_script(manage: Manage, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    database = tmp_path / "data" / "hub.sqlite3"
    assert copy_database(database)
    assert manage("verify_audit").returncode == 0
    an_hour_ago = timezone.now() - timedelta(hours=1)
    forged = {"writer": uuid4(), "chain_position": 1, "chain_hash": b"x" * 32}
    Call.objects.create(finished_at=an_hour_ago, duration_us=1, outcome="ok", **forged)
    copy_database(database)
    result = manage("verify_audit")
    assert (result.returncode, "CHANGED" in result.stdout) == (1, True)
    assert "Verification of the audit log failed." in result.stderr


def test_the_doctor_runs_before_anything_is_prepared_and_prints_no_secret(manage: Manage) -> None:
    done = manage("doctor", MCPHUB_SECRET_KEY="hunter22-hunter22-hunter22-hunter22", MCPHUB_DEBUG="1")

    assert done.returncode == 1, done.stderr
    assert "problem  migrations: " in done.stdout
    assert "Run python manage.py migrate." in done.stdout
    assert "warning  debug: on" in done.stdout
    assert "hunter22" not in done.stdout + done.stderr
