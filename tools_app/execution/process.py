"""What every process of the hub does from its first call on, web or worker."""

from collections.abc import Sequence

from tools_app.audit import recorder
from tools_app.events import publish
from tools_app.execution import housekeeping, measures
from tools_app.telemetry import tracing


def start(kind: str) -> None:
    """Ring doorbells for what becomes durable here, and keep house. `kind` is "web" or "worker"."""
    recorder.on_commit(_ring)
    measures.start(kind)
    tracing.start(measures.hub_version())
    housekeeping.start(kind)


def stop() -> None:
    """Stop housekeeping and doorbells. The recorder is stopped by whoever stops the process, last."""
    housekeeping.stop()
    publish.shutdown()
    measures.withdraw()
    tracing.stop()


def _ring(topics: Sequence[str]) -> None:
    publish.ring(*topics)
