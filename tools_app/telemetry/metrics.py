"""Every metric that the hub has: its name, what it means, its labels, and how several processes' values become one.

Labels are bounded by construction: none holds what a client may choose.
"""

from enum import Enum
from typing import NamedTuple

MILLISECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
COMMITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


class Kind(Enum):
    """What a metric does over time, and how the values of several processes are put together."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    SUM = "gauge, summed"
    LARGEST = "gauge, the largest"
    SMALLEST = "gauge, the smallest"
    HUB = "gauge of the whole hub, asked when it is scraped"


class Metric(NamedTuple):
    """One metric."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS: dict[str, Metric] = {
    "mcphub_calls_total": Metric(
        Kind.COUNTER, "Calls that ended and are recorded.", ("method", "outcome", "revision", "mode")
    ),
    "mcphub_tenant_calls_total": Metric(
        Kind.COUNTER, "The same by tenant, with MCPHUB_METRICS_BY_TENANT.", ("tenant", "outcome")
    ),
    "mcphub_call_duration_seconds": Metric(
        Kind.HISTOGRAM, "How long calls took, from their arrival to their end.", ("method", "mode"), MILLISECONDS
    ),
    "mcphub_call_queue_seconds": Metric(
        Kind.HISTOGRAM, "How long background calls waited for a worker.", (), MILLISECONDS
    ),
    "mcphub_denials_total": Metric(Kind.COUNTER, "Requests that were turned away.", ("status",)),
    "mcphub_requests_total": Metric(
        Kind.COUNTER, "HTTP requests of the protocol, and messages on channels.", ("transport",)
    ),
    "mcphub_recorder_batch_records": Metric(Kind.HISTOGRAM, "Records that became durable in one commit.", (), COUNTS),
    "mcphub_recorder_commit_seconds": Metric(Kind.HISTOGRAM, "How long a commit took.", (), COMMITS),
    "mcphub_recorder_failed_records_total": Metric(Kind.COUNTER, "Records that could not be written."),
    "mcphub_recorder_waiting_records": Metric(Kind.SUM, "Records that wait for their commit."),
    "mcphub_ring_misses_total": Metric(
        Kind.COUNTER, "Look-ups of keys, sessions and catalogs that had to wait for the database.", ("ring",)
    ),
    "mcphub_running_calls": Metric(Kind.SUM, "Calls that run in these processes now."),
    "mcphub_open_streams": Metric(Kind.SUM, "Event streams and connections that are open now."),
    "mcphub_requests_in_progress": Metric(Kind.SUM, "HTTP requests of the protocol that are being answered."),
    "mcphub_event_loop_lag_seconds": Metric(
        Kind.HISTOGRAM, "How late the event loop came to what was due.", (), COMMITS
    ),
    "mcphub_processes": Metric(Kind.SUM, "Processes that these numbers come from.", ("kind", "version", "python")),
    "mcphub_process_start_time_seconds": Metric(Kind.SMALLEST, "When the oldest of them started, as Unix time."),
    "mcphub_process_cpu_seconds_total": Metric(Kind.COUNTER, "Processor time that they used."),
    "mcphub_process_resident_memory_bytes": Metric(Kind.SUM, "Memory that they hold."),
    "mcphub_process_open_fds_ratio": Metric(
        Kind.LARGEST, "File descriptors in use, as a part of those allowed, where it is largest."
    ),
    "mcphub_part_up": Metric(Kind.HUB, "Whether a part that the hub needs can be reached.", ("part",)),
    "mcphub_broker_queue_messages": Metric(Kind.HUB, "Messages in the Celery queue that no worker took yet."),
    "mcphub_queued_calls": Metric(Kind.HUB, "Background calls that no worker began with yet."),
    "mcphub_oldest_queued_call_seconds": Metric(Kind.HUB, "How long the oldest of them has waited."),
    "mcphub_live_processes": Metric(Kind.HUB, "Processes of the whole hub whose heart beats.", ("kind",)),
    "mcphub_open_sessions": Metric(Kind.HUB, "Sessions of handshake clients that are open."),
    "mcphub_expiring_keys": Metric(Kind.HUB, "API keys that expire within 14 days and that nobody has replaced."),
}
