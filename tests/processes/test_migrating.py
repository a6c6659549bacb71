"""Updating a hub on SQLite: `migrate` keeps what its audit log holds, there and back."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.archives.upgrading import one_by_one

Manage = Callable[..., subprocess.CompletedProcess[str]]

# In one process, which starts once.
MIGRATE = f"""
from django.core.management import call_command
from django.db import connection

SAID = [("{uuid4().hex}", number, "2026-05-04 12:00:00", "progress", str(number)) for number in (2, 1, 3)]

def ask(query, rows=()):
    with connection.cursor() as cursor:
        return cursor.executemany(query, rows) if rows else cursor.execute(query).fetchall()

def migrate(target):
    call_command("migrate", "tools_app", target, verbosity=0)

migrate("0004")
columns = "call_id, sequence, at, kind, data"
ask(f"INSERT INTO tools_app_callevent ({{columns}}) VALUES (%s, %s, %s, %s, %s)", SAID)
kept = sorted(ask(f"SELECT {{columns}} FROM tools_app_callevent"))
assert len(kept) == len(SAID)
for target in ("0005", "0004", "0005"):
    migrate(target)
    assert sorted(ask(f"SELECT {{columns}} FROM tools_app_callevent")) == kept, target
    assert not ask("SELECT name FROM sqlite_master WHERE name LIKE '%!_old' ESCAPE '!'"), target
call_command("makemigrations", check=True, dry_run=True)
print("kept")
"""


def test_events_are_kept_when_their_key_changes_and_when_it_changes_back(manage: Manage, tmp_path: Path) -> None:
    done = manage("shell", "--no-imports", "-c", MIGRATE, **one_by_one(tmp_path))
    assert (done.returncode, done.stdout.split()[-1]) == (0, "kept"), done.stderr
