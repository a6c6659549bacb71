"""Optional tracing, and the trace context of a request.

`active` is None if tracing is off, and then OpenTelemetry is not imported. OpenTelemetry's own environment variables
configure it. It is on where the extra `otel` is installed and an exporter is configured: by
OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER.

The trace context (W3C Trace Context) is `00-<trace id>-<span id>-<flags>`. It is read from the request's `_meta`
(2026-07-28, base protocol, §`_meta`), which takes precedence, or from HTTP headers. It is parsed without OpenTelemetry,
because the record of a call always names its trace.
"""

import importlib
import importlib.util
import logging
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, Protocol

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SDK = "opentelemetry.sdk"

Attributes = Mapping[str, str | int | bool]


class Span(Protocol):
    """A span in progress."""

    def note(self, name: str, value: str | int | bool) -> None:
        """Add an attribute that was not known at the start."""

    def fail(self, error_type: str) -> None:
        """Mark the span as failed with an error type of low cardinality, never a message (it may contain a secret)."""


class Spans(Protocol):
    """A factory of spans."""

    def span(
        self, kind: str, name: str, attributes: Attributes, carrier: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Span]:
        """Open a span around a block. `kind` is server, internal, client, producer or consumer.

        Without a `carrier` from another process, its parent is the running span.
        """

    def carrier(self) -> dict[str, str]:
        """Return the carrier that continues the running span in another process of the hub."""

    def traceparent(self) -> str:
        """Return the header that continues the running span in an external service: ids, and no client data."""

    def trace_id(self) -> str:
        """Return the id of the running trace; "" without one."""

    def flush(self, seconds: float) -> None:
        """Export the queued spans, within `seconds`."""


FLUSH_SECONDS = 2.0

active: Spans | None = None

_started: set[int] = set()
_starting = Lock()


def is_wanted() -> bool:
    """Whether the environment configures an exporter."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(os.environ.get(name) for name in (*ENDPOINTS, "OTEL_TRACES_EXPORTER"))


def is_installed() -> bool:
    """Whether the extra `otel` is installed."""
    try:
        return importlib.util.find_spec(SDK) is not None
    except ModuleNotFoundError:
        return False


def start(version: str) -> None:
    """Start tracing in this process once, if it is configured. A forked child starts again."""
    with _starting:
        if os.getpid() in _started:
            return
        _started.add(os.getpid())
        if not is_wanted():
            return
        if not is_installed():
            log.warning("An OTEL_ variable asks for traces: install the extra `otel`.")
            return
        # Imported here: without the extra, the import fails.
        use(importlib.import_module("tools_app.core.telemetry.spans").from_environment(version))


def use(spans: Spans | None) -> None:
    """Use `spans` for tracing from now on, or turn tracing off (None)."""
    global active  # noqa: PLW0603 - a process traces in one way
    active = spans


def stop() -> None:
    """Export the queued spans before the process ends."""
    if active is not None:
        active.flush(FLUSH_SECONDS)


KEYS = ("traceparent", "tracestate", "baggage")
# The length that each specification requires platforms to support; longer values are ignored.
MAX_VALUE_LENGTH = 8192

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(params: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return the id of the client's trace, as 32 hex digits; "" without one."""
    meta = params.get("_meta")
    traceparent = meta.get("traceparent") if isinstance(meta, dict) else None
    return _trace_id(traceparent) or _trace_id(headers.get("traceparent"))


def carrier_of(params: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the client's trace context from one source; empty if it is not valid."""
    meta = params.get("_meta")
    for source in (meta if isinstance(meta, dict) else {}, headers):
        if _trace_id(source.get("traceparent")):
            pairs = ((key, source.get(key)) for key in KEYS)
            return {key: value for key, value in pairs if isinstance(value, str) and len(value) <= MAX_VALUE_LENGTH}
    return {}


def _trace_id(traceparent: Any) -> str:
    if not isinstance(traceparent, str):
        return ""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found else ""
