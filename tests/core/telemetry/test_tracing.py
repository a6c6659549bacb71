"""Enabling tracing, and its requirements."""

import pytest

from tools_app.core.telemetry import tracing

OTEL = ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", *tracing.ENDPOINTS)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in OTEL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tracing, "_started", set())
    monkeypatch.setattr(tracing, "active", None)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, False),
    ],
    ids=str,
)
def test_an_exporter_that_is_named_turns_them_on(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert tracing.is_wanted() is expected


def test_without_one_nothing_begins():
    tracing.start("1")

    assert tracing.active is None


def test_who_asks_for_traces_without_the_extra_is_told_and_served(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setattr(tracing, "is_installed", lambda: False)

    tracing.start("1")

    assert tracing.active is None
    assert "install the extra `otel`" in caplog.text
