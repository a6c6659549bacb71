"""The endpoint `/metrics`: permissions and contents."""

import logging
from contextlib import suppress

import httpx
import pytest
from django.contrib.auth.models import User

from tests.wire.client import RawClient, call_params
from tools_app.core.telemetry.registry import METRICS, Kind
from tools_app.runtime import readiness

TOKEN = "a-token-for-prometheus"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def token(settings):
    settings.MCPHUB_METRICS_TOKEN = TOKEN


@pytest.fixture
def caller(hub):
    """A client of the running hub: `caller(key)`."""
    clients = []

    def make(key):
        clients.append(RawClient(hub.url, key))
        return clients[-1]

    yield make
    for client in clients:
        client.http.close()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_the_token_opens_it(client, token):
    response = client.get("/metrics", headers=bearer(TOKEN))

    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "mcphub_part_up" in response.content.decode()


@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(""), {"Authorization": TOKEN}], ids=str)
def test_without_the_token_it_is_closed(client, token, headers):
    response = client.get("/metrics", headers=headers)

    assert (response.status_code, response["WWW-Authenticate"]) == (401, 'Bearer realm="metrics"')
    assert b"mcphub_" not in response.content


@pytest.mark.parametrize("headers", [{}, bearer(""), bearer("None")], ids=str)
def test_where_no_token_is_set_it_is_not_there(client, settings, headers):
    settings.MCPHUB_METRICS_TOKEN = ""

    assert client.get("/metrics", headers=headers).status_code == 404


@pytest.mark.parametrize(("person", "status"), [("root", 200), ("staff", 404)])
def test_of_people_superusers_read_it(client, settings, person, status):
    settings.MCPHUB_METRICS_TOKEN = ""
    User.objects.create_superuser("root", password="x")
    User.objects.create_user("staff", password="x", is_staff=True)
    client.force_login(User.objects.get(username=person))

    assert client.get("/metrics").status_code == status


def test_it_only_reads(client, token):
    assert client.post("/metrics", headers=bearer(TOKEN)).status_code == 405


def test_a_part_that_is_away_is_down_and_the_rest_is_told(client, token, monkeypatch):
    def refuse():
        raise ConnectionError("10.0.0.7 refused")

    monkeypatch.setitem(readiness.PARTS, "broker", refuse)

    text = client.get("/metrics", headers=bearer(TOKEN)).content.decode()

    assert 'mcphub_part_up{part="broker"} 0.0' in text
    assert 'mcphub_part_up{part="database"} 1.0' in text
    assert "10.0.0.7" not in text


def test_calls_and_denials_are_counted_by_how_they_ended(hub, caller, tenant, key, offer, token, eventually, settings):
    settings.MCPHUB_METRICS_BY_TENANT = True
    offer("echo", "count", "test_throw")
    before = numbers(hub)
    client = caller(key)
    for _ in range(3):
        client.modern("tools/call", call_params("echo", {"message": "x"}))
    client.modern("tools/call", call_params("test_throw"))
    client.modern("tools/call", call_params("count", {"n": 1}))
    client.modern("tools/call", call_params("nothing at all"))
    client.handshake("2025-03-26").call("echo", {"message": "x"})
    caller("mcphub_wrong").modern("ping")

    def missing():
        # At least: calls of another test may be counted only now.
        now = numbers(hub)
        grown = {name: now.get(name, 0) - before.get(name, 0) for name in expected}
        return {name: (count, grown[name]) for name, count in expected.items() if grown[name] < count}

    expected = {
        'mcphub_calls_total{method="tools/call",mode="inline",outcome="ok",revision="2026-07-28"}': 3,
        'mcphub_calls_total{method="tools/call",mode="inline",outcome="ok",revision="2025-03-26"}': 1,
        'mcphub_calls_total{method="tools/call",mode="inline",outcome="tool_error",revision="2026-07-28"}': 1,
        'mcphub_calls_total{method="tools/call",mode="inline",outcome="rejected",revision="2026-07-28"}': 1,
        'mcphub_calls_total{method="tools/call",mode="background",outcome="ok",revision="2026-07-28"}': 1,
        'mcphub_denials_total{status="401"}': 1,
        'mcphub_tenant_calls_total{outcome="ok",tenant="acme"}': 5,
        'mcphub_call_duration_seconds_count{method="tools/call",mode="background"}': 1,
        "mcphub_call_queue_seconds_count": 1,
    }
    with suppress(AssertionError):
        eventually(lambda: not missing())
    assert missing() == {}
    assert all("nothing" not in name and "echo" not in name for name in numbers(hub)), "names that clients choose"


def numbers(hub):
    response = httpx.get(f"{hub.url}/metrics", headers=bearer(TOKEN), trust_env=False)
    assert response.status_code == 200
    lines = [line for line in response.text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_every_gauge_is_there(hub, caller, tenant, key, token, caplog, eventually):
    caller(key).modern("ping")
    gauges = [name for name, metric in METRICS.items() if metric.kind not in (Kind.COUNTER, Kind.HISTOGRAM)]

    def missing():
        present = {name.partition("{")[0] for name in numbers(hub)}
        return [name for name in gauges if name not in present]

    with caplog.at_level(logging.WARNING):
        assert eventually(lambda: not missing()), missing()
    assert "No answer for /metrics" not in caplog.text
