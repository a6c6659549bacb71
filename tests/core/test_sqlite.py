"""Threads of a process write to SQLite in turn."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.db.utils import load_backend

from tools_app.core.sqlite import base
from tools_app.core.sqlite.base import DatabaseWrapper

WAIT_SECONDS = 30.0
INSERT = "INSERT INTO entry VALUES (%s)"


@pytest.fixture
def connect(tmp_path: Path, django_db_blocker: Any) -> Iterator[Callable[..., DatabaseWrapper]]:
    """Connections to one database, as settings.py makes them."""
    path = tmp_path / "queue.sqlite3"
    opened: list[DatabaseWrapper] = []

    def make(timeout: float = WAIT_SECONDS) -> DatabaseWrapper:
        options = {"timeout": timeout, "transaction_mode": "IMMEDIATE"}
        settings = {
            "ENGINE": "tools_app.core.sqlite",
            "NAME": str(path),
            "OPTIONS": options,
            "AUTOCOMMIT": True,
            "CONN_MAX_AGE": None,
            "CONN_HEALTH_CHECKS": False,
            "TIME_ZONE": None,
            "ATOMIC_REQUESTS": False,
            "TEST": {},
        }
        connection = load_backend("tools_app.core.sqlite").DatabaseWrapper(settings, "default")
        connection.inc_thread_sharing()
        opened.append(connection)
        return connection

    with django_db_blocker.unblock():
        with make().cursor() as cursor:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("CREATE TABLE entry (name text)")
        yield make
        for connection in opened:
            connection.close()


def test_a_new_database_and_the_files_beside_it_are_readable_by_their_owner_only(
    tmp_path: Path, connect: Callable[..., DatabaseWrapper]
) -> None:
    with connect().cursor() as cursor:
        cursor.execute(INSERT, ["x"])
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("queue.sqlite3*")}
    assert modes == dict.fromkeys(["queue.sqlite3", "queue.sqlite3-wal", "queue.sqlite3-shm"], 0o600)


@contextmanager
def transaction_of(connection: DatabaseWrapper) -> Iterator[None]:
    """A transaction, as `atomic` begins and ends it."""
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        yield
        connection.commit()
    finally:
        connection.rollback()
        connection.set_autocommit(True)


def write(connection: DatabaseWrapper, name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [name])


def written(connection: DatabaseWrapper) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM entry ORDER BY rowid")
        return [row[0] for row in cursor.fetchall()]


def in_thread(work: Callable[[], None], waiting: int, connection: DatabaseWrapper) -> threading.Thread:
    """A thread that waits for the lock as the `waiting`th one."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    queue = base._queues()[str(connection.settings_dict["NAME"])]
    deadline = threading.Event()
    for _ in range(int(WAIT_SECONDS * 1000)):
        if len(queue.waiting) == waiting:
            return thread
        deadline.wait(0.001)
    raise AssertionError("the thread does not wait")


def test_threads_write_in_the_order_in_which_they_asked(connect: Callable[..., DatabaseWrapper]) -> None:
    first = connect()
    names = [str(number) for number in range(8)]
    with transaction_of(first):
        connections = [connect() for _ in names]
        threads = [
            in_thread(lambda connection=connection, name=name: write(connection, name), number, first)  # type: ignore[misc]
            for number, (connection, name) in enumerate(zip(connections, names, strict=True), 1)
        ]
        write(first, "first")
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert written(first) == ["first", *names]


def test_a_transaction_that_waits_goes_before_one_that_asks_again(connect: Callable[..., DatabaseWrapper]) -> None:
    busy, patient = connect(), connect()

    def wait() -> None:
        with transaction_of(patient):
            write(patient, "patient")

    with transaction_of(busy):
        thread = in_thread(wait, 1, busy)
        write(busy, "busy")
    for _ in range(20):
        write(busy, "busy")
    thread.join(WAIT_SECONDS)
    assert written(busy).index("patient") == 1


def test_records_go_before_what_waits(connect: Callable[..., DatabaseWrapper]) -> None:
    busy, page, recorder = connect(), connect(), connect()

    def record() -> None:
        with recorder.write_lock(first=True):
            write(recorder, "record")

    with transaction_of(busy):
        threads = [in_thread(lambda: write(page, "page"), 1, busy), in_thread(record, 2, busy)]
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert written(busy) == ["record", "page"]


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_however_a_transaction_ends_others_go_on(connect: Callable[..., DatabaseWrapper], end: str) -> None:
    one, other = connect(), connect(timeout=5.0)
    one.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    if end == "commit":
        one.commit()
    elif end == "close":
        one.close()
    else:
        one.rollback()
    write(other, "other")
    assert written(other) == ["other"]


def test_who_waits_too_long_is_told_what_sqlite_says(connect: Callable[..., DatabaseWrapper]) -> None:
    one, other = connect(), connect(timeout=0.05)
    with transaction_of(one):
        with pytest.raises(OperationalError, match="database is locked"):
            write(other, "other")
        write(one, "one")
    write(other, "other")
    assert written(one) == ["one", "other"]


def test_another_process_that_writes_is_waited_for_too(connect: Callable[..., DatabaseWrapper]) -> None:
    connection = connect(timeout=0.05)
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="database is locked"), transaction_of(connection):
            raise AssertionError("the other one holds the lock")
        other.execute("ROLLBACK")
    write(connection, "own")
    assert written(connection) == ["own"]


def test_reading_waits_for_nobody(connect: Callable[..., DatabaseWrapper]) -> None:
    one, other = connect(), connect(timeout=0.05)
    with transaction_of(one):
        write(one, "one")
        assert written(other) == []
    assert written(other) == ["one"]
