"""OpenTelemetry spans. Imported only where tracing is on, because it requires the extra `otel`.

No span contains a request, a response, or the message of an exception: they may contain secrets.
"""

import os
from asyncio import CancelledError
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import cast

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tools_app.core.telemetry.tracing import Attributes

KINDS = {kind.name.lower(): kind for kind in SpanKind}
EXPORTERS = "opentelemetry_traces_exporter"
MAX_VALUE = 256

_ids = TraceContextTextMapPropagator()
_everything = CompositePropagator([_ids, W3CBaggagePropagator()])


class OpenSpan:
    """A span that has not ended."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def note(self, name: str, value: str | int | bool) -> None:
        """Add an attribute."""
        self._span.set_attribute(name, _bounded(value))

    def fail(self, error_type: str) -> None:
        """Set the status to error, with an error type."""
        self._span.set_attribute("error.type", error_type[:MAX_VALUE])
        self._span.set_status(StatusCode.ERROR)


class OtelSpans:
    """Spans of one tracer provider."""

    def __init__(self, provider: TracerProvider, version: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("mcphub", version)

    @contextmanager
    def span(
        self, kind: str, name: str, attributes: Attributes, carrier: Mapping[str, str] | None = None
    ) -> Iterator[OpenSpan]:
        """Open a span around a block; an exception that leaves the block marks it as failed."""
        began = self._tracer.start_as_current_span(
            name[:MAX_VALUE],
            # A new context, even without a carrier: earlier spans of this task are not its parents.
            context=None if carrier is None else _everything.extract(carrier, Context()),
            kind=KINDS[kind],
            attributes={key: _bounded(value) for key, value in attributes.items()},
            record_exception=False,
            set_status_on_exception=False,
        )
        with began as running:
            opened = OpenSpan(running)
            try:
                yield opened
            except CancelledError:
                opened.fail("cancelled")
                raise
            except Exception as problem:
                # The code that knows the error has set the status.
                if running.is_recording() and "error.type" not in (getattr(running, "attributes", None) or {}):
                    opened.fail(type(problem).__qualname__)
                raise

    def carrier(self) -> dict[str, str]:
        """Return the carrier that continues the running span in another process of the hub."""
        written: dict[str, str] = {}
        _everything.inject(written)
        return written

    def traceparent(self) -> str:
        """Return the header that continues the running span in an external service."""
        written: dict[str, str] = {}
        _ids.inject(written)
        return written.get("traceparent", "")

    def trace_id(self) -> str:
        """Return the id of the running trace."""
        running = trace.get_current_span().get_span_context()
        return trace.format_trace_id(running.trace_id) if running.is_valid else ""

    def flush(self, seconds: float) -> None:
        """Export the queued spans."""
        self._provider.force_flush(int(seconds * 1000))


def from_environment(version: str) -> OtelSpans:
    """Create spans from OpenTelemetry's environment variables, or use a provider that is already set up."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        # The operator may set another name: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
        attributes = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "mcphub", "service.version": version}
        provider = TracerProvider(resource=Resource.create(cast("dict[str, str | int]", attributes)))
        for exporter in exporters():
            provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
    return OtelSpans(provider, version)


def exporters() -> list[SpanExporter]:
    """Return the exporters of OTEL_TRACES_EXPORTER, `otlp` by default. Raises LookupError for a missing one."""
    protocol = (
        os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    created = []
    for text in (os.environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        name = text.strip()
        if name == "otlp":
            name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
        found = list(entry_points(group=EXPORTERS, name=name))
        if not found:
            raise LookupError(f"No installed package exports traces as {name!r} (OTEL_TRACES_EXPORTER).")
        created.append(cast("SpanExporter", found[0].load()()))
    return created


def _bounded(value: str | int | bool) -> str | int | bool:
    return value[:MAX_VALUE] if isinstance(value, str) else value
