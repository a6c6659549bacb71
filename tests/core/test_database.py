"""Queries in threads: a connection is checked before it is used, unless it worked a moment ago."""

from threading import local

import pytest
from django.db import connection

from tools_app.core import database


def is_checked_already() -> bool:
    return connection.health_check_done


def fail() -> None:
    raise ValueError


@pytest.mark.django_db(transaction=True)
def test_a_connection_is_checked_unless_it_worked_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check is a round trip to the database. After an error, and after a while, it is worth its time."""
    now = 100.0
    monkeypatch.setattr(database, "monotonic", lambda: now)
    monkeypatch.setattr(database, "_worked", local())
    connection.ensure_connection()
    assert not database.guarded(is_checked_already)
    assert database.guarded(is_checked_already)
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        database.guarded(fail)
    assert not database.guarded(is_checked_already)
    now += database.TRUSTED_SECONDS
    assert not database.guarded(is_checked_already)
