"""`/healthz` and `/readyz`, as an orchestrator sees them."""

from threading import Event

import httpx
import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from tools_app.execution import readiness


def test_a_live_process_says_so_without_its_database(client):
    # No database fixture here: a query would fail the test.
    answer = client.get("/healthz")

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db(transaction=True)
def test_a_ready_process_names_its_parts(client):
    answer = client.get("/readyz")

    assert answer.json() == {"status": "ok", "parts": {"database": "ok", "broker": "ok", "channel_layer": "ok"}}
    assert answer.status_code == 200


@pytest.mark.parametrize("part", ["database", "broker", "channel_layer"])
@pytest.mark.django_db(transaction=True)
def test_a_part_that_is_gone_makes_it_unready_without_saying_where_it_was(client, monkeypatch, part):
    def refuse() -> None:
        raise ConnectionError("10.0.0.7:5432 refused user hub")

    monkeypatch.setitem(readiness.PARTS, part, refuse)

    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert answer.json()["parts"][part] == "unavailable"
    assert "10.0.0.7" not in answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_part_that_hangs_is_not_waited_for(client, monkeypatch):
    release = Event()
    monkeypatch.setitem(readiness.PARTS, "broker", lambda: release.wait(30) and None)
    monkeypatch.setattr(readiness, "SECONDS", 0.05)

    answer = client.get("/readyz")
    release.set()

    assert answer.json()["parts"]["broker"] == "unavailable"


def test_a_database_that_refuses_makes_it_unready(client, monkeypatch):
    def refuse(connection: BaseDatabaseWrapper) -> None:
        raise OperationalError("no route to 10.0.0.7")

    monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", refuse)

    answer = client.get("/readyz")

    assert (answer.status_code, answer.json()["parts"]["database"]) == (503, "unavailable")


def test_health_is_open_to_everybody_but_only_reads(client):
    assert client.post("/healthz").status_code == 405


def test_the_running_hub_answers_both(hub):
    assert httpx.get(f"{hub.url}/healthz").status_code == 200
    assert httpx.get(f"{hub.url}/readyz").json()["status"] == "ok"
