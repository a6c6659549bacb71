"""Start and stop of the services that every web and worker process runs."""

import gc

from tools_app.audit.checkpoints import forwarding as witness_forwarding
from tools_app.audit.recorder import recorder
from tools_app.calls.background import broker
from tools_app.core.notifications import publish
from tools_app.core.process.thread_loops import thread_loops
from tools_app.core.telemetry import tracing
from tools_app.runtime import housekeeping, metrics_publisher
from tools_app.upstreams import connections
from tools_app.upstreams.credentials import refresh

# A call leaves no reference cycles: to collect every 700 new objects, Python's default, takes a tenth of its time. A
# page of the admin leaves 800 objects, and a collection of 20,000 would hold all calls for 25 ms.
YOUNG_OBJECTS = 5_000


def start(kind: str) -> None:
    """Start notifications of durable records, metrics and housekeeping. `kind` is "web" or "worker"."""
    gc.set_threshold(YOUNG_OBJECTS)
    recorder.on_commit(publish.notify_with_payloads)
    metrics_publisher.start(kind)
    tracing.start(metrics_publisher.hub_version())
    witness_forwarding.start()
    housekeeping.housekeeper(kind)


def stop() -> None:
    """Stop housekeeping, the broker's threads and notifications. `stop_recording` follows when the last call ended."""
    housekeeping.housekeeper.stop()
    broker.current.stop()
    publish.publisher.stop()
    metrics_publisher.publisher.stop()
    tracing.stop()


def stop_recording() -> None:
    """Close upstreams and idle event loops, write and sign the last records, then forward the last checkpoints."""
    connections.current.stop()
    refresh.refresher.stop()
    thread_loops.stop()
    recorder.current.stop()
    witness_forwarding.forwarder.stop()
