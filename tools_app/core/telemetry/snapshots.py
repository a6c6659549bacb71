"""Exchange of metrics between the processes of one host: each writes a file, and a scrape reads all files.

A scrape of any web process therefore covers the whole host: all processes that share its port, and the Celery workers.
A file that is not refreshed belongs to a dead process: its gauges are dropped and its counters are kept.
"""

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

import orjson

from tools_app.core.telemetry.registry import MetricRegistry, Snapshot

EVERY_SECONDS = 5.0
SILENT_SECONDS = 20.0
DEAD_SECONDS = 300.0
# The total counts of dead processes.
DEAD_PROCESSES = "gone.json"


class Publisher:
    """Writes the metrics of one process to `directory`."""

    def __init__(self, directory: Path, metrics_registry: MetricRegistry) -> None:
        self._directory = directory
        self._tallies = metrics_registry
        self.path = directory / f"{os.getpid()}-{uuid4().hex}.json"
        self._published = False

    def publish(self) -> None:
        """Write the current metrics. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._published and not self.path.exists():
            # This process was considered dead after a long pause: its counts were added to those of dead processes.
            self._tallies.clear()
        _write(self.path, self._tallies.snapshot())
        self._published = True

    def withdraw(self) -> None:
        """Add the counts of this process, which ends, to those of dead processes."""
        if self._published and self.path.exists():
            _write(self.path, self._tallies.snapshot())
            with _locked(self._directory):
                _fold_dead(self._directory, [self.path])
            self._tallies.clear()


def current_snapshots(directory: Path) -> list[Snapshot]:
    """Return the metrics of every process that writes to `directory`, and the counts of dead processes."""
    if not directory.is_dir():
        return []
    with _locked(directory):
        _fold_dead(directory, [path for path, age in _files(directory) if age > DEAD_SECONDS])
        snapshots = [
            {**_read(path), "gauges": []} if age > SILENT_SECONDS else _read(path) for path, age in _files(directory)
        ]
        return [*snapshots, _read(directory / DEAD_PROCESSES)]


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let no other process add to the totals meanwhile: what it added would be lost, or be counted twice."""
    held = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _files(directory: Path) -> list[tuple[Path, float]]:
    """Return each file and the seconds since it was written."""
    now, found = time(), []
    for path in sorted(directory.glob("*-*.json")):
        try:
            found.append((path, now - path.stat().st_mtime))
        except FileNotFoundError:
            continue
    return found


def _fold_dead(directory: Path, paths: Iterable[Path]) -> None:
    """Add the counts of dead processes to the totals. Under the lock."""
    for path in paths:
        taken = path.with_suffix(".taken")
        try:
            # A process that goes on after all sees by its missing file that its counts were added.
            path.rename(taken)
        except FileNotFoundError:
            continue
        _write(directory / DEAD_PROCESSES, summed([_read(directory / DEAD_PROCESSES), _read(taken)]))
        taken.unlink()


def summed(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Sum the counters and histograms of several processes; gauges are not summed here."""
    counts: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    spreads: dict[tuple[Any, ...], tuple[list[int], float]] = {}
    for snapshot in snapshots:
        for name, labels, value in snapshot["counts"]:
            counts[name, tuple(labels)] += value
        for name, labels, buckets, total in snapshot["spreads"]:
            held, sum_ = spreads.get((name, tuple(labels)), ([0] * len(buckets), 0.0))
            # A different length comes from a version with other buckets.
            if len(held) == len(buckets):
                both = [left + right for left, right in zip(held, buckets, strict=True)]
                spreads[name, tuple(labels)] = both, sum_ + total
    return {
        "counts": [[name, labels, value] for (name, labels), value in counts.items()],
        "spreads": [[name, labels, buckets, total] for (name, labels), (buckets, total) in spreads.items()],
        "gauges": [],
    }


def _read(path: Path) -> Snapshot:
    """Return the metrics of a file; empty if it does not exist or is incomplete."""
    try:
        snapshot: Snapshot = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {"counts": [], "spreads": [], "gauges": []}
    return snapshot


def _write(path: Path, snapshot: Snapshot) -> None:
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(orjson.dumps(snapshot))
    draft.replace(path)
