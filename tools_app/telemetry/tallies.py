"""What this process counts: plain numbers, added up away from the way of a call, and read when somebody asks."""

import os
import platform
import re
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from threading import Lock
from time import process_time, time
from typing import Any

from tools_app.telemetry.metrics import METRICS

Key = tuple[str, tuple[str, ...]]
Snapshot = dict[str, list[Any]]

_STARTED = time()
_MOST_DESCRIPTORS = re.compile(r"Max open files\s+(\d+)")


class Tallies:
    """Counters and histograms by name and label values. May be added to from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: defaultdict[Key, float] = defaultdict(float)
        self._spreads: dict[Key, tuple[list[int], list[float]]] = {}
        self._gauges: dict[Key, Callable[[], float]] = {}

    def add(self, name: str, amount: float = 1, labels: tuple[str, ...] = ()) -> None:
        """Raise a counter."""
        with self._lock:
            self._counts[name, labels] += amount

    def observe(self, name: str, values: Iterable[float], labels: tuple[str, ...] = ()) -> None:
        """Add `values` to a histogram."""
        bounds = METRICS[name].buckets
        with self._lock:
            spread = self._spreads.get((name, labels))
            if spread is None:
                spread = self._spreads[name, labels] = [0] * (len(bounds) + 1), [0.0]
            buckets, total = spread
            for value in values:
                buckets[bisect_left(bounds, value)] += 1
                total[0] += value

    def gauge(self, name: str, read: Callable[[], float], labels: tuple[str, ...] = ()) -> None:
        """Ask `read` for the value whenever it is wanted. A later one takes its place."""
        self._gauges[name, labels] = read

    def clear(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._counts.clear()
            self._spreads.clear()

    def snapshot(self) -> Snapshot:
        """All values as JSON has them: `[name, [label, …], value]`."""
        gauges = [[name, labels, read()] for (name, labels), read in list(self._gauges.items())]
        with self._lock:
            counts = [[name, labels, value] for (name, labels), value in self._counts.items()]
            spreads = [
                [name, labels, list(buckets), total[0]] for (name, labels), (buckets, total) in self._spreads.items()
            ]
        return {"counts": [*counts, *_used()], "spreads": spreads, "gauges": [*gauges, *_held()]}


def _used() -> list[Any]:
    return [["mcphub_process_cpu_seconds_total", [], process_time()]]


def _held() -> list[Any]:
    held = [["mcphub_process_start_time_seconds", [], _STARTED]]
    # Where there is no /proc, there are no such numbers.
    memory, descriptors = Path("/proc/self/statm"), Path("/proc/self/fd")
    if memory.exists() and descriptors.exists():
        pages = int(memory.read_text().split()[1])
        held.append(["mcphub_process_resident_memory_bytes", [], pages * os.sysconf("SC_PAGE_SIZE")])
        held.append(["mcphub_process_open_fds_ratio", [], len(list(descriptors.iterdir())) / _most_descriptors()])
    return held


def _most_descriptors() -> float:
    allowed = _MOST_DESCRIPTORS.search(Path("/proc/self/limits").read_text())
    return float(allowed[1]) if allowed else inf


tallies = Tallies()
# A forked child begins at nought: its parent's numbers are its parent's.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=tallies.clear)


def say_who(kind: str, version: str) -> None:
    """Note what this process is: `kind` is "web" or "worker"."""
    labels = (kind, version, f"{platform.python_implementation()} {sys.version.split()[0]}")
    tallies.gauge("mcphub_processes", lambda: 1.0, labels)
