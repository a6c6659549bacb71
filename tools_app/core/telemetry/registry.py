"""The metrics of the hub and their values in this process.

Each metric has a name, a description, labels, and an aggregation over several processes. The number of label values is
bounded: no label contains a value that a client may choose. The values are plain numbers, aggregated outside of the
path of a call and read on request.
"""

import os
import platform
import re
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from math import inf
from pathlib import Path
from threading import Lock
from time import process_time, time
from typing import Any, NamedTuple

MILLISECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
COMMITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


class Kind(Enum):
    """The type of a metric, and how the values of several processes are aggregated."""

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
    "mcphub_cache_misses_total": Metric(
        Kind.COUNTER, "Lookups of keys, sessions and catalogs that had to wait for the database.", ("cache",)
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
    "mcphub_expiring_keys": Metric(Kind.HUB, "API keys that expire within 14 days and have no replacement."),
}


Key = tuple[str, tuple[str, ...]]
Snapshot = dict[str, list[Any]]

_STARTED = time()
_MAX_DESCRIPTORS = re.compile(r"Max open files\s+(\d+)")


class MetricRegistry:
    """Counters and histograms by name and label values. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: defaultdict[Key, float] = defaultdict(float)
        self._spreads: dict[Key, tuple[list[int], list[float]]] = {}
        self._gauges: dict[Key, Callable[[], float]] = {}

    def add(self, name: str, amount: float = 1, labels: tuple[str, ...] = ()) -> None:
        """Increment a counter."""
        self.update({(name, labels): amount}, {})

    def observe(self, name: str, values: Iterable[float], labels: tuple[str, ...] = ()) -> None:
        """Add `values` to a histogram."""
        self.update({}, {(name, labels): values})

    def update(self, amounts: Mapping[Key, float], values: Mapping[Key, Iterable[float]]) -> None:
        """Increment several counters by `amounts`, and add `values` to several histograms."""
        with self._lock:
            for key, amount in amounts.items():
                self._counts[key] += amount
            for key, added in values.items():
                bounds = METRICS[key[0]].buckets
                spread = self._spreads.get(key)
                if spread is None:
                    spread = self._spreads[key] = [0] * (len(bounds) + 1), [0.0]
                buckets, total = spread
                for value in added:
                    buckets[bisect_left(bounds, value)] += 1
                    total[0] += value

    def gauge(self, name: str, read: Callable[[], float], labels: tuple[str, ...] = ()) -> None:
        """Register a gauge whose value is read from `read`. A later one replaces it."""
        self._gauges[name, labels] = read

    def clear(self) -> None:
        """Reset all counters and histograms."""
        with self._lock:
            self._counts.clear()
            self._spreads.clear()

    def renew(self) -> None:
        """Reset all in a forked child, where a thread that held the lock is no more."""
        self._lock = Lock()
        self.clear()

    def snapshot(self) -> Snapshot:
        """Return all values in JSON form: `[name, [label, …], value]`."""
        gauges = [[name, labels, read()] for (name, labels), read in list(self._gauges.items())]
        with self._lock:
            counts = [[name, labels, value] for (name, labels), value in self._counts.items()]
            spreads = [
                [name, labels, list(buckets), total[0]] for (name, labels), (buckets, total) in self._spreads.items()
            ]
        counts.append(["mcphub_process_cpu_seconds_total", (), process_time()])
        return {"counts": counts, "spreads": spreads, "gauges": [*gauges, *_held()]}


def _held() -> list[Any]:
    held = [["mcphub_process_start_time_seconds", [], _STARTED]]
    # These metrics require /proc.
    memory, descriptors = Path("/proc/self/statm"), Path("/proc/self/fd")
    if memory.exists() and descriptors.exists():
        pages = int(memory.read_text().split()[1])
        limit = _MAX_DESCRIPTORS.search(Path("/proc/self/limits").read_text())
        allowed = float(limit[1]) if limit else inf
        held.append(["mcphub_process_resident_memory_bytes", [], pages * os.sysconf("SC_PAGE_SIZE")])
        held.append(["mcphub_process_open_fds_ratio", [], len(list(descriptors.iterdir())) / allowed])
    return held


metrics_registry = MetricRegistry()
# A forked child starts at zero: the parent reports its own counts.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=metrics_registry.renew)


def describe_process(kind: str, version: str) -> None:
    """Register this process as a gauge: `kind` is "web" or "worker"."""
    labels = (kind, version, f"{platform.python_implementation()} {sys.version.split()[0]}")
    metrics_registry.gauge("mcphub_processes", lambda: 1.0, labels)
