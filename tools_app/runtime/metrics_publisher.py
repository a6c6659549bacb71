"""Publication of a process's metrics to a directory that the processes of its host share."""

import logging
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from django.conf import settings

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.redaction import is_secret
from tools_app.calls import run
from tools_app.core.process.runtime import Service
from tools_app.core.telemetry import scrubbing, snapshots
from tools_app.core.telemetry.registry import Snapshot, describe_process, metrics_registry
from tools_app.core.telemetry.snapshots import Publisher

log = logging.getLogger(__name__)


def start(kind: str) -> None:
    """Start collecting metrics of this process. `kind` is "web" or "worker"."""
    describe_process(kind, hub_version())
    metrics_registry.gauge("mcphub_recorder_waiting_records", recorder.waiting)
    metrics_registry.gauge("mcphub_running_calls", lambda: len(run.running_here()))
    scrubbing.hide_arguments(is_secret)


@cache
def hub_version() -> str:
    """Return the version of the hub."""
    try:
        return version("mcphub")
    except PackageNotFoundError:
        return "unknown"


def directory() -> Path:
    """Return the directory that the processes of this host share for metrics."""
    return Path(settings.MCPHUB_DATA_DIR) / "metrics"


def publish() -> None:
    """Write this process's metrics to the shared directory."""
    try:
        publisher().publish()
    except OSError as problem:
        log.debug("The metrics of this process are not published: %s", problem)


def _withdraw(publisher: Publisher) -> None:
    """Hand this process's counters over to the remaining processes before it ends."""
    try:
        publisher.withdraw()
    except OSError as problem:
        log.debug("The metrics of this process are lost: %s", problem)


# The publisher of this process.
publisher = Service(lambda: Publisher(directory(), metrics_registry), _withdraw)


def gathered() -> list[Snapshot]:
    """Return the metrics of all processes of this host, with current values of this one."""
    publish()
    found = snapshots.current_snapshots(directory())
    return found if publisher().path.exists() else [*found, metrics_registry.snapshot()]
