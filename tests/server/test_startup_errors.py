"""Failures that the operator can fix are explained in one line: what is wrong, then what to do."""

import errno
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, OperationalError, ProgrammingError
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

import manage
from mcphub import startup
from tools_app.core import schema_state
from tools_app.doctor import configuration
from tools_app.server import startup_checks, startup_errors
from tools_app.server.startup_errors import explain

Fault = Callable[[Path], Any]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, django_db_blocker: DjangoDbBlocker) -> Iterator[Path]:
    """The path of the hub's database in the settings."""
    path = tmp_path / "hub.sqlite3"
    monkeypatch.setitem(settings.DATABASES["default"], "NAME", str(path))
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setattr(schema_state, "newer_migrations", lambda: None)
    with django_db_blocker.unblock():
        yield path


def run(path: Path, *statements: str) -> None:
    """Run SQL as Django does."""
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": {"timeout": 0}}
    with closing(ConnectionHandler({"default": database})["default"]) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def not_a_database(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    run(path, "SELECT * FROM sqlite_master")


def damaged(path: Path) -> None:
    run(path, "CREATE TABLE t (a)", *["INSERT INTO t VALUES (hex(randomblob(2000)))"] * 9)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x17" * (len(content) - 4096)
    path.write_bytes(content)
    run(path, "SELECT * FROM t")


def in_no_directory(path: Path) -> None:
    run(path.parent / "missing" / "hub.sqlite3", "SELECT 1")


def read_only(path: Path) -> None:
    run(path, "CREATE TABLE t (a)", "PRAGMA query_only = ON", "INSERT INTO t VALUES (1)")


def full(path: Path) -> None:
    run(path, "CREATE TABLE t (a)", "PRAGMA max_page_count = 2", "INSERT INTO t VALUES (zeroblob(100000))")


def locked(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        run(path, "CREATE TABLE t (a)")


def not_migrated(path: Path) -> None:
    run(path, "SELECT * FROM tools_app_tenant")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (not_a_database, "is not an SQLite database. Restore a backup"),
        (damaged, "is damaged. Restore a backup"),
        (in_no_directory, "cannot be opened. Its directory must exist"),
        (read_only, "is read-only. This user must be able to write"),
        (full, "is full. Free some space"),
        (locked, "is locked by another process. Stop that process"),
        (not_migrated, "Run python manage.py migrate."),
    ],
)
def test_faults_of_a_database_file_are_explained_with_what_to_do(file: Path, fault: Fault, expected: str) -> None:
    with pytest.raises(DatabaseError) as failed:
        fault(file)

    explanation = explain(failed.value)
    assert expected in explanation
    assert "\n" not in explanation
    assert fault is not_migrated or str(file) in explanation


@pytest.fixture
def on_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.postgresql")
    monkeypatch.setattr(schema_state, "newer_migrations", lambda: None)


def with_cause(error: Exception, cause: Any) -> Exception:
    error.__cause__ = cause
    return error


class DriverError(Exception):
    """An error of psycopg, with PostgreSQL's code."""

    def __init__(self, sqlstate: str | None) -> None:
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("kind", "state", "message", "expected"),
    [
        (
            OperationalError,
            None,
            "connection failed: port 5432 failed: Connection refused\n\tIs the server running?",
            "The database is unavailable: connection failed: port 5432 failed: Connection refused. Start PostgreSQL",
        ),
        (
            OperationalError,
            None,
            'connection failed: connection to server at "db", port 5432 failed: FATAL:  database "hub" does not exist',
            'PostgreSQL rejected the connection: database "hub" does not exist. Create it, or correct DATABASE_URL.',
        ),
        (
            OperationalError,
            None,
            'connection failed: FATAL:  password authentication failed for user "hub"',
            'PostgreSQL rejected the connection: password authentication failed for user "hub". Correct DATABASE_URL',
        ),
        (ProgrammingError, None, 'invalid connection option "banana"', "correct DATABASE_URL"),
        (ProgrammingError, "42P01", 'relation "tools_app_tenant" does not exist', "Run python manage.py migrate."),
        (OperationalError, "53100", "could not extend file: No space left on device", "Free some space"),
        (OperationalError, "25006", "cannot execute INSERT in a read-only transaction", "the primary server"),
    ],
)
def test_faults_of_postgresql_are_explained_with_what_to_do(
    on_postgresql: None, kind: type[Exception], state: str | None, message: str, expected: str
) -> None:
    explanation = explain(with_cause(kind(message), DriverError(state)))

    assert expected in explanation
    assert "\n" not in explanation


def test_tables_of_a_newer_version_are_distinguished_from_missing_ones(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_state, "newer_migrations", lambda: "The database is newer.")

    with pytest.raises(DatabaseError) as failed:
        not_migrated(file)
    assert explain(failed.value) == "The database is newer."


def test_the_migrations_of_a_newer_version_are_named(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert schema_state.newer_migrations() is None
    assert not schema_state.is_behind()
    monkeypatch.setattr(schema_state, "_known_migrations", set)

    assert schema_state.newer_migrations().startswith("The database was migrated by a newer version of the hub (0001_")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModuleNotFoundError("No module named 'redis'", name="redis.asyncio"), "Run pip install -e '.[redis]'."),
        (
            ModuleNotFoundError("No module named 'unfold'", name="unfold"),
            "unfold is required but not installed.",
        ),
        (ImproperlyConfigured("MCPHUB_X: write 1."), "MCPHUB_X: write 1."),
        (ImproperlyConfigured("Error loading psycopg2 or psycopg module"), "pip install -e '.[postgres]'"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "The disk with /data/x is full."),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "/data/x cannot be used: Permission denied."),
        (KeyboardInterrupt(), "Interrupted."),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "The output was closed early."),
    ],
)
def test_other_failures_of_a_start_are_explained_too(error: BaseException, expected: str) -> None:
    assert expected in explain(error)


def test_a_missing_module_of_the_operators_apps_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPHUB_APPS", "their_app, other.sub")

    explanation = explain(ModuleNotFoundError("No module named 'other.sub'", name="other.sub"))
    assert explanation == "MCPHUB_APPS: there is no module other.sub. Check the spelling."
    assert explain(ModuleNotFoundError("No module named 'numpy'", name="numpy")) is None


def test_a_server_that_does_not_answer_is_explained_whatever_its_driver() -> None:
    refused = type("ConnectionError", (Exception,), {"__module__": "redis.exceptions"})
    assert "Redis is unavailable: refused. Start it" in explain(refused("refused"))
    refused = type("OperationalError", (Exception,), {"__module__": "kombu.exceptions"})
    assert "The broker is unavailable: refused. Start it" in explain(refused("refused"))


def test_the_cause_of_a_failure_is_looked_for_behind_it() -> None:
    assert explain(with_cause(RuntimeError("could not start"), ImproperlyConfigured("MCPHUB_X: write 1."))) is not None


def test_what_may_be_a_bug_is_not_explained_away() -> None:
    assert explain(with_cause(ValueError("x"), KeyError("y"))) is None
    assert explain(FileNotFoundError(errno.ENOENT, "No such file", "x")) is None


def test_no_sentence_names_a_password() -> None:
    assert "hunter22" not in explain(ImproperlyConfigured("X: postgres://hub:hunter22@db/hub is no database"))


# --- Output -------------------------------------------------------------------------------------------------------


def error_output(capsys: pytest.CaptureFixture[str], error: BaseException) -> str:
    startup.report_error(type(error), error, error.__traceback__)
    return capsys.readouterr().err


def test_a_sentence_takes_the_place_of_a_traceback(capsys, monkeypatch):
    monkeypatch.delenv("MCPHUB_DEBUG", raising=False)

    assert error_output(capsys, ImproperlyConfigured("MCPHUB_X: write 1.")) == "mcphub: MCPHUB_X: write 1.\n"
    assert "ValueError: a bug" in error_output(capsys, ValueError("a bug"))


def test_who_wants_the_traceback_gets_it(capsys, monkeypatch):
    error = ImproperlyConfigured("MCPHUB_X: write 1.")
    monkeypatch.setenv("MCPHUB_DEBUG", "1")
    assert "django.core.exceptions.ImproperlyConfigured" in error_output(capsys, error)
    monkeypatch.delenv("MCPHUB_DEBUG")
    monkeypatch.setattr(sys, "argv", ["manage.py", "up", "--traceback"])
    assert "django.core.exceptions.ImproperlyConfigured" in error_output(capsys, error)


def test_an_explanation_that_fails_hides_nothing(capsys, monkeypatch):
    monkeypatch.setattr(startup_errors, "explain", lambda _error: 1 / 0)

    assert "ImproperlyConfigured: MCPHUB_X" in error_output(capsys, ImproperlyConfigured("MCPHUB_X: write 1."))


def test_a_python_that_is_too_old_is_rejected_before_anything_is_imported(monkeypatch):
    monkeypatch.setattr(manage.sys, "version_info", (3, 9, 1))

    with pytest.raises(SystemExit, match=r"^mcphub needs Python 3\.11 or newer; this is Python 3\.9\.$"):
        manage.main()


# --- Misspelt variables, and one hub for each database ------------------------------------------------------------


def test_a_misspelt_variable_is_named_with_the_one_that_was_meant(settings: Any, caplog: Any) -> None:
    settings.MCPHUB_UNKNOWN_VARIABLES = {
        "MCPHUB_ALOWED_HOSTS": "Did you mean MCPHUB_ALLOWED_HOSTS?",
        "MCPHUB_ZEBRA": "",
    }

    configuration.log_unknown_variables()

    assert [record.getMessage() for record in caplog.records] == [
        "MCPHUB_ALOWED_HOSTS is not a setting of the hub. Did you mean MCPHUB_ALLOWED_HOSTS?",
        "MCPHUB_ZEBRA is not a setting of the hub.",
    ]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[SimpleNamespace]:
    path = tmp_path / "hub.sqlite3"
    with startup_checks.lock_data(path) as lock:
        yield SimpleNamespace(path=path, lock=lock)


def test_a_second_hub_on_the_same_data_is_refused_with_the_process_that_has_them(held: Any) -> None:
    with pytest.raises(
        startup_checks.DataInUse, match=rf"^Another hub \(process \d+\) already uses {held.path}\. Stop"
    ):
        startup_checks.lock_data(held.path)


def test_the_data_are_free_again_when_the_first_has_gone(held: Any) -> None:
    held.lock.close()

    startup_checks.lock_data(held.path).close()
