"""Updating a hub on SQLite: `migrate` keeps what its audit log holds, there and back."""

import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

Manage = Callable[..., subprocess.CompletedProcess[str]]

SAID = [(uuid4().hex, number, "2026-05-04 12:00:00", "progress", f'{{"progress":{number}}}') for number in (2, 1, 3)]
COLUMNS = "call_id, sequence, at, kind, data"


def test_events_are_kept_when_their_key_changes_and_when_it_changes_back(
    manage: Manage, environment: dict[str, str]
) -> None:
    def migrate(target: str) -> None:
        done = manage("migrate", "tools_app", target, "--verbosity", "0")
        assert done.returncode == 0, done.stderr

    def ask(query: str, rows: Any = ()) -> list[Any]:
        with closing(sqlite3.connect(Path(environment["MCPHUB_DATA_DIR"]) / "hub.sqlite3")) as database, database:
            return database.executemany(query, rows).fetchall() if rows else database.execute(query).fetchall()

    migrate("0004")
    ask(f"INSERT INTO tools_app_callevent ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", SAID)
    for target in ("0005", "0004", "0005"):
        migrate(target)
        assert sorted(ask(f"SELECT {COLUMNS} FROM tools_app_callevent")) == sorted(SAID)
        assert not ask("SELECT name FROM sqlite_master WHERE name LIKE '%\\_old' ESCAPE '\\'")
    done = manage("makemigrations", "--check", "--dry-run")
    assert done.returncode == 0, done.stdout
