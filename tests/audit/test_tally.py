"""Counters of recorded calls."""

from uuid import uuid4

import pytest

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import CallFinished, Facts, FinishedRow, Payload
from tools_app.core.telemetry.registry import MetricRegistry


@pytest.fixture
def counted(monkeypatch):
    """The counters of the batches of a test: `counted()`."""
    metrics_registry = MetricRegistry()
    monkeypatch.setattr(recorder, "metrics_registry", metrics_registry)
    return lambda: {(name, *labels): value for name, labels, value in metrics_registry.snapshot()["counts"]}


def ending(outcome="ok", **more):
    facts = dict.fromkeys(Facts._fields, "") | {"id": uuid4(), "method": "tools/call", "protocol_version": "2025-11-25"}
    ended = dict.fromkeys(FinishedRow._fields, 0) | {"outcome": outcome, "background": False, "duration_us": 1500}
    facts |= {name: value for name, value in more.items() if name in facts}
    ended |= {name: value for name, value in more.items() if name in ended}
    return CallFinished(
        Facts(**facts), FinishedRow(**ended), Payload(**dict.fromkeys(Payload._fields, "")), settles=False
    )


def test_a_call_that_somebody_else_settled_is_not_counted_again(counted):
    mine, theirs = ending(), ending()
    recorder.count_written([mine, theirs], {theirs.call_id}, 0.001)

    assert counted()["mcphub_calls_total", "tools/call", "ok", "2025-11-25", "inline"] == 1


def test_denials_count_for_all_that_they_stand_for(counted):
    recorder.count_written(
        [ending("denied", http_status=401, repeated=40), ending("denied", http_status=429, repeated=1)], (), 1
    )

    assert counted()["mcphub_denials_total", "401"] == 40
    assert counted()["mcphub_denials_total", "429"] == 1
    assert not [key for key in counted() if key[0] == "mcphub_calls_total"]


def test_a_method_that_a_client_made_up_is_no_label(counted):
    recorder.count_written([ending(method="made/up")], (), 1)

    assert ("mcphub_calls_total", "other", "ok", "2025-11-25", "inline") in counted()


def test_tenants_are_counted_only_if_that_is_wanted(counted, settings):
    recorder.count_written([ending(tenant_id="t-1")], (), 1)
    assert not [key for key in counted() if "tenant" in key[0]]
    settings.MCPHUB_METRICS_BY_TENANT = True
    recorder.count_written([ending(tenant_id="t-1")], (), 1)

    assert counted()["mcphub_tenant_calls_total", "t-1", "ok"] == 1
