"""OpenTelemetry spans: their attributes for failures, and what they leave out."""

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tools_app.core.telemetry import spans
from tools_app.core.telemetry.spans import OtelSpans


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def traced(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OtelSpans(provider, "1")


@pytest.mark.parametrize(
    ("raised", "error_type"),
    [(ValueError("hunter22"), "ValueError"), (asyncio.CancelledError("hunter22"), "cancelled")],
    ids=["ValueError", "CancelledError"],
)
def test_an_exception_is_named_and_not_told(traced, exporter, raised, error_type):
    with pytest.raises(type(raised)), traced.span("internal", "work", {}):
        raise raised

    (span,) = exporter.get_finished_spans()
    assert (span.attributes["error.type"], span.status.status_code.name) == (error_type, "ERROR")
    assert "hunter22" not in span.to_json()


def test_who_knows_better_why_it_failed_is_not_overruled(traced, exporter):
    def work():
        with traced.span("internal", "work", {}) as span:
            span.fail("-32602")
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        work()

    assert exporter.get_finished_spans()[0].attributes["error.type"] == "-32602"


def test_an_attribute_is_bounded(traced, exporter):
    with traced.span("internal", "n" * 5000, {"given": "a" * 5000}) as span:
        span.note("noted", "b" * 5000)

    (span,) = exporter.get_finished_spans()
    assert {len(text) for text in (span.name, *span.attributes.values())} == {spans.MAX_VALUE}


def test_exporters_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    assert [type(exporter).__name__ for exporter in spans.exporters()] == ["ConsoleSpanExporter"]
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nobody")
    with pytest.raises(LookupError, match="nobody"):
        spans.exporters()
