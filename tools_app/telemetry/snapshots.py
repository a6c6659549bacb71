"""Where the processes of one host find each other's numbers: each writes its own to a file, whoever is asked reads all.

So a scrape of any web process answers for all of the host, however many share its port, and for the Celery workers
beside them. A file that is not renewed is a dead process's: its gauges are gone, and what it counted is kept.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

import orjson

from tools_app.telemetry.tallies import Snapshot, Tallies

EVERY_SECONDS = 5.0
SILENT_SECONDS = 20.0
DEAD_SECONDS = 300.0
# What the dead have counted, added up.
BEQUEST = "gone.json"


class Publisher:
    """Writes one process's numbers to `directory`."""

    def __init__(self, directory: Path, tallies: Tallies) -> None:
        self._directory = directory
        self._tallies = tallies
        self.path = directory / f"{os.getpid()}-{uuid4().hex}.json"
        self._published = False

    def publish(self) -> None:
        """Write the numbers as they are now. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._published and not self.path.exists():
            # Taken for dead after a long standstill: what was counted so far stands with the dead now.
            self._tallies.clear()
        _write(self.path, self._tallies.snapshot())
        self._published = True

    def withdraw(self) -> None:
        """Leave what was counted to those that stay."""
        if self._published and self.path.exists():
            _write(self.path, self._tallies.snapshot())
            _bequeath(self._directory, [self.path])
            self._tallies.clear()


def gathered(directory: Path) -> list[Snapshot]:
    """The numbers of every process that writes to `directory`, and what the dead have counted."""
    _bequeath(directory, [path for path, age in _files(directory) if age > DEAD_SECONDS])
    snapshots = [_heard(path, silent=age > SILENT_SECONDS) for path, age in _files(directory)]
    return [*snapshots, _read(directory / BEQUEST)]


def _files(directory: Path) -> list[tuple[Path, float]]:
    """Each file and the seconds since it was written."""
    now, found = time(), []
    for path in sorted(directory.glob("*-*.json")):
        try:
            found.append((path, now - path.stat().st_mtime))
        except FileNotFoundError:
            continue
    return found


def _heard(path: Path, *, silent: bool) -> Snapshot:
    snapshot = _read(path)
    return {**snapshot, "gauges": []} if silent else snapshot


def _bequeath(directory: Path, paths: Iterable[Path]) -> None:
    """Add what the dead have counted to the bequest, one writer at a time."""
    for path in paths:
        taken = path.with_suffix(".taken")
        try:
            # Who renames a file is the one who adds it up.
            path.rename(taken)
        except FileNotFoundError:
            continue
        _write(directory / BEQUEST, added_up([_read(directory / BEQUEST), _read(taken)]))
        taken.unlink()


def added_up(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Counters and histograms of several processes in one; gauges are not for adding up here."""
    counts: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    spreads: dict[tuple[Any, ...], tuple[list[int], float]] = {}
    for snapshot in snapshots:
        for name, labels, value in snapshot["counts"]:
            counts[name, tuple(labels)] += value
        for name, labels, buckets, total in snapshot["spreads"]:
            held, sum_ = spreads.get((name, tuple(labels)), ([0] * len(buckets), 0.0))
            # Of another length: written by a version with other buckets.
            if len(held) == len(buckets):
                both = [left + right for left, right in zip(held, buckets, strict=True)]
                spreads[name, tuple(labels)] = both, sum_ + total
    return {
        "counts": [[name, labels, value] for (name, labels), value in counts.items()],
        "spreads": [[name, labels, buckets, total] for (name, labels), (buckets, total) in spreads.items()],
        "gauges": [],
    }


def _read(path: Path) -> Snapshot:
    """A file's numbers; none if there is no such file any more, or none that is whole."""
    try:
        snapshot: Snapshot = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {"counts": [], "spreads": [], "gauges": []}
    return snapshot


def _write(path: Path, snapshot: Snapshot) -> None:
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(orjson.dumps(snapshot))
    draft.replace(path)
