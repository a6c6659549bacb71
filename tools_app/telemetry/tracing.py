"""Traces, if the operator wants them: `active` is None otherwise, and then nothing of OpenTelemetry is imported.

OpenTelemetry's own environment variables configure them. They are on where the extra `otel` is installed and an
exporter is named: by OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER.
"""

import importlib
import importlib.util
import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from threading import Lock
from typing import Protocol

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SDK = "opentelemetry.sdk"

Attributes = Mapping[str, str | int | bool]


class Span(Protocol):
    """A stretch of work that is being done."""

    def note(self, name: str, value: str | int | bool) -> None:
        """Add an attribute that was not known when it began."""

    def fail(self, error_type: str) -> None:
        """Say that it failed, and as what: a word of few, never a message, which may hold a secret."""


class Spans(Protocol):
    """Where spans begin."""

    def span(
        self, kind: str, name: str, attributes: Attributes, carrier: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Span]:
        """A span around a block. `kind` is server, internal, client, producer or consumer; without a `carrier` from
        elsewhere its parent is the running span.
        """

    def carrier(self) -> dict[str, str]:
        """What continues the running span in another process of the hub."""

    def traceparent(self) -> str:
        """What continues it in somebody else's service: ids, and nothing that a client said."""

    def trace_id(self) -> str:
        """The id of the running trace; "" without one."""

    def flush(self, seconds: float) -> None:
        """Send what waits, within `seconds`."""


FLUSH_SECONDS = 2.0

active: Spans | None = None

_started: set[int] = set()
_starting = Lock()


def is_wanted() -> bool:
    """Whether the environment names an exporter."""
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
    """Begin to trace in this process, if it is wanted; once. A forked child does so anew."""
    with _starting:
        if os.getpid() in _started:
            return
        _started.add(os.getpid())
        if not is_wanted():
            return
        if not is_installed():
            log.warning("An OTEL_ variable asks for traces: install the extra `otel`.")
            return
        # Not at the top: without the extra there is nothing to import.
        use(importlib.import_module("tools_app.telemetry.spans").from_environment(version))


def use(spans: Spans | None) -> None:
    """Trace by `spans` from here on, or not any more."""
    global active  # noqa: PLW0603 - a process traces in one way
    active = spans


def stop() -> None:
    """Send what waits: the process ends."""
    if active is not None:
        active.flush(FLUSH_SECONDS)
