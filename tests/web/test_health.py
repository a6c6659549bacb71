"""The health endpoints `/healthz` and `/readyz`."""

from threading import Event

import httpx
import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from tests.audit.test_recorder import Gate, saying
from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.core.process.runtime import HubRuntime
from tools_app.models import CallAnswer
from tools_app.runtime import readiness

PARTS = ["database", "recorder", "broker", "channel_layer"]


def test_a_live_process_says_so_without_its_database(client):
    # Without the database fixture, a query fails the test.
    response = client.get("/healthz")

    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.django_db(transaction=True)
def test_a_ready_process_names_its_parts(client):
    response = client.get("/readyz")

    assert response.json() == {"status": "ok", "parts": dict.fromkeys(PARTS, "ok")}
    assert response.status_code == 200


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.django_db(transaction=True)
def test_a_part_that_is_gone_makes_it_unready_without_saying_where_it_was(client, monkeypatch, part):
    def refuse() -> None:
        raise ConnectionError("10.0.0.7:5432 refused user hub")

    monkeypatch.setitem(readiness.PARTS, part, refuse)

    response = client.get("/readyz")

    assert response.status_code == 503
    assert response.json()["status"] == "unavailable"
    assert response.json()["parts"][part] == "unavailable"
    assert "10.0.0.7" not in response.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_part_that_hangs_is_not_waited_for(client, monkeypatch):
    release = Event()
    monkeypatch.setitem(readiness.PARTS, "broker", lambda: release.wait(30) and None)
    monkeypatch.setattr(readiness, "SECONDS", 0.05)

    response = client.get("/readyz")
    release.set()

    assert response.json()["parts"]["broker"] == "unavailable"


def test_a_database_that_refuses_makes_it_unready(client, monkeypatch):
    def refuse(connection: BaseDatabaseWrapper) -> None:
        raise OperationalError("no route to 10.0.0.7")

    monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", refuse)

    response = client.get("/readyz")

    assert (response.status_code, response.json()["parts"]["database"]) == (503, "unavailable")


def test_health_is_open_to_everybody_but_only_reads(client):
    assert client.post("/healthz").status_code == 405


def test_the_running_hub_answers_both(hub):
    assert httpx.get(f"{hub.url}/healthz").status_code == 200
    assert httpx.get(f"{hub.url}/readyz").json()["status"] == "ok"


def recorder_of(client) -> str:
    response = client.get("/readyz")
    assert (response.status_code == 200) == (set(response.json()["parts"].values()) == {"ok"})
    return response.json()["parts"]["recorder"]


def full(_entries: object) -> None:
    raise OperationalError("database or disk is full")


@pytest.mark.django_db(transaction=True)
def test_a_process_that_cannot_write_records_is_unready_until_it_can(client, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(recorder, "write", full)
        with pytest.raises(RecorderUnavailable):
            recorder.current().record(saying())
    assert recorder_of(client) == "unavailable"

    recorder.current().record(saying())

    assert recorder_of(client) == "ok"


@pytest.mark.django_db(transaction=True)
def test_a_recorder_that_hangs_makes_it_unready(client, monkeypatch, eventually):
    monkeypatch.setattr(recorder, "STUCK_SECONDS", 0.1)
    monkeypatch.setattr(recorder, "WATCH_SECONDS", 0.02)
    gate = Gate()
    with HubRuntime(), monkeypatch.context() as patched:
        patched.setattr(recorder, "write", gate)
        recorder.current().submit(saying())
        assert eventually(lambda: recorder_of(client) == "unavailable")
        gate.opened.set()
        recorder.current.stop()


@pytest.mark.django_db(transaction=True)
def test_a_process_that_recorded_nothing_lately_tries_to_write(client, monkeypatch):
    monkeypatch.setattr(recorder, "last_outcome", lambda: None)
    assert recorder_of(client) == "ok"
    assert not CallAnswer.objects.exists()

    connection_created.connect(_read_only)
    try:
        assert recorder_of(client) == "unavailable"
    finally:
        connection_created.disconnect(_read_only)


def _read_only(connection, **_signal: object) -> None:
    on_sqlite = connection.vendor == "sqlite"
    connection.connection.execute("PRAGMA query_only=ON" if on_sqlite else "SET default_transaction_read_only = on")


@pytest.mark.django_db(transaction=True)
def test_many_who_ask_are_answered_by_one_look(client, monkeypatch):
    looks: list[int] = []
    monkeypatch.setattr(readiness, "KEEP_SECONDS", 60.0)
    monkeypatch.setattr(readiness, "_last", readiness._Results())
    monkeypatch.setitem(readiness.PARTS, "broker", lambda: looks.append(1))

    assert [client.get("/readyz").status_code for _ in range(20)] == [200] * 20

    assert looks == [1]
