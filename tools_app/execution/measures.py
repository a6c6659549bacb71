"""What a process of the hub tells of itself: its numbers, left where the other processes of its host find them."""

import logging
import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from django.conf import settings

from tools_app.audit import recorder
from tools_app.audit.redaction import is_secret
from tools_app.execution import local
from tools_app.telemetry import scrubbing, snapshots
from tools_app.telemetry.snapshots import Publisher
from tools_app.telemetry.tallies import Snapshot, say_who, tallies

log = logging.getLogger(__name__)

_publishers: dict[int, Publisher] = {}


def start(kind: str) -> None:
    """Begin to measure this process. `kind` is "web" or "worker"."""
    say_who(kind, hub_version())
    tallies.gauge("mcphub_recorder_waiting_records", recorder.waiting)
    tallies.gauge("mcphub_running_calls", lambda: len(local.running()))
    scrubbing.hide_arguments(is_secret)


@cache
def hub_version() -> str:
    """The version of the hub's code."""
    try:
        return version("mcphub")
    except PackageNotFoundError:
        return "unknown"


def directory() -> Path:
    """Where the processes of this host leave their numbers for each other."""
    return Path(settings.MCPHUB_DATA_DIR) / "metrics"


def publish() -> None:
    """Leave this process's numbers where the others of its host find them."""
    pid = os.getpid()
    if pid not in _publishers:
        _publishers[pid] = Publisher(directory(), tallies)
    try:
        _publishers[pid].publish()
    except OSError as problem:
        log.debug("The numbers of this process stay its own: %s", problem)


def withdraw() -> None:
    """Leave what was counted to the processes that stay: this one ends."""
    publisher = _publishers.pop(os.getpid(), None)
    if publisher is not None:
        try:
            publisher.withdraw()
        except OSError as problem:
            log.debug("The numbers of this process are lost: %s", problem)


def gathered() -> list[Snapshot]:
    """The numbers of all processes of this host, of this one as they are now."""
    publish()
    found = snapshots.gathered(directory())
    return found if _publishers[os.getpid()].path.exists() else [*found, tallies.snapshot()]
