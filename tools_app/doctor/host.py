"""Checks of the host: Python and packages, data directory and disk, files with secrets, and open files."""

import os
import platform
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from django.conf import settings
from packaging.requirements import Requirement

from tools_app.doctor.configuration import is_on_sqlite
from tools_app.doctor.findings import Finding, graded, ok, problem
from tools_app.runtime.metrics_publisher import hub_version
from tools_app.telemetry import tracing

OLDEST_PYTHON = (3, 11)
EXTRAS = {"postgres": "psycopg", "redis": "channels_redis", "otel": "opentelemetry-sdk"}
ENOUGH_BYTES = 1024**3
LEAST_BYTES = 100 * 1024**2
ENOUGH_DESCRIPTORS = 4096
SECRET_FILES = ("secret.key", "audit.key")
OTHERS = stat.S_IRWXG | stat.S_IRWXO
# File locks and memory maps, which SQLite requires, do not work there.
NETWORK_FILE_SYSTEMS = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|ceph|glusterfs|lustre|afs|fuse\.(?:sshfs|s3fs|rclone|gcsfuse)"
)


def python() -> Iterator[Finding]:
    """Check the Python version."""
    running = f"Python {platform.python_version()}, mcphub {hub_version()}"
    oldest = ".".join(map(str, OLDEST_PYTHON))
    too_old = tuple(sys.version_info) < OLDEST_PYTHON
    yield graded("python", running, f"Use Python {oldest} or newer.", is_problem=too_old)


def packages() -> Iterator[Finding]:
    """Check the installed packages against the requirements."""
    wrong = [said for text in _required() if (said := _against(Requirement(text)))]
    for said in wrong:
        yield problem("packages", said, "Reinstall the hub: pip install -c constraints.txt -e .")
    if not wrong:
        yield ok("packages", "all required packages are installed in supported versions")


def _required() -> list[str]:
    return [text for text in requires("mcphub") or [] if "extra ==" not in text]


def _against(required: Requirement) -> str:
    """Return why an installed package does not fit; "" if it does."""
    if required.marker is not None and not required.marker.evaluate():
        return ""
    try:
        installed = version(required.name)
    except PackageNotFoundError:
        return f"{required.name} is not installed"
    if required.specifier.contains(installed, prereleases=True):
        return ""
    return f"{required.name} is {installed}, the hub requires {required.specifier}"


def extras() -> Iterator[Finding]:
    """Check the extras that the settings require."""
    wanted = {
        "postgres": settings.DATABASES["default"]["ENGINE"].endswith("postgresql"),
        "redis": bool(settings.REDIS_URL),
        "otel": tracing.is_wanted(),
    }
    for extra, is_wanted in wanted.items():
        if is_wanted:
            yield graded(
                "packages",
                f"the extra {extra} is {'installed' if _is_there(extra) else 'missing, but required by the settings'}",
                f"pip install -e '.[{extra}]'",
                is_problem=not _is_there(extra),
            )


def _is_there(extra: str) -> bool:
    try:
        version(EXTRAS[extra])
    except PackageNotFoundError:
        return False
    return True


def data_directory() -> Iterator[Finding]:
    """Check the permissions of the data directory."""
    path = Path(settings.MCPHUB_DATA_DIR)
    yield _private("data directory", path, 0o700)
    for name in SECRET_FILES:
        if (path / name).exists():
            yield _private(name, path / name, 0o600)
    if is_on_sqlite():
        yield _private("database file", Path(str(settings.DATABASES["default"]["NAME"])), 0o600)


def _private(about: str, path: Path, wanted: int) -> Finding:
    if not path.exists():
        return ok(about, f"{path} does not exist yet")
    mode = stat.S_IMODE(path.stat().st_mode)
    in_private = stat.S_IMODE(path.parent.stat().st_mode) & OTHERS == 0
    exposed = bool(mode & OTHERS) and not in_private
    said = f"{path}, mode {mode:o}"
    is_secret = path.name in SECRET_FILES
    return graded(
        about,
        f"{said}: accessible to other users" if exposed else said,
        f"chmod {wanted:o} {path}",
        is_problem=exposed and is_secret,
        is_warning=exposed,
    )


def disk() -> Iterator[Finding]:
    """Check the free disk space: the hub refuses calls that it cannot record."""
    place = _database_directory() if is_on_sqlite() else Path(settings.MCPHUB_DATA_DIR)
    free = shutil.disk_usage(place).free
    yield graded(
        "disk",
        f"{free / ENOUGH_BYTES:.1f} GiB free at {place}",
        "Free disk space, or set MCPHUB_KEEP_DAYS: calls are rejected when their records cannot be stored.",
        is_problem=free < LEAST_BYTES,
        is_warning=free < ENOUGH_BYTES,
    )


def file_system() -> Iterator[Finding]:
    """Check the file system of the SQLite file."""
    if not is_on_sqlite():
        return
    kind = file_system_of(_database_directory())
    yield graded(
        "file system",
        f"the database is on {kind}",
        "Move MCPHUB_DATA_DIR to a local disk: SQLite loses data on network file systems. Or use PostgreSQL.",
        is_problem=bool(NETWORK_FILE_SYSTEMS.fullmatch(kind)),
    )


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system of `path`; "unknown" where the system does not report it."""
    if not mounts.exists():
        return "unknown"
    best, kind = Path("/"), "unknown"
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4].replace("\\040", " "))
        if path.resolve().is_relative_to(point) and point.parts >= best.parts[: len(point.parts)]:
            best, kind = (point, after.split()[0]) if len(point.parts) >= len(best.parts) else (best, kind)
    return kind


def descriptors() -> Iterator[Finding]:
    """Check the maximum number of open files, which limits connections."""
    limits = Path("/proc/self/limits")
    allowed = re.search(r"Max open files\s+(\d+)", limits.read_text()) if limits.exists() else None
    if allowed is None:
        return
    yield graded(
        "open files",
        f"{allowed[1]} allowed for a process",
        f"Raise the limit to at least {ENOUGH_DESCRIPTORS} (ulimit -n, LimitNOFILE=): each open stream needs one.",
        is_warning=int(allowed[1]) < ENOUGH_DESCRIPTORS,
    )


def _database_directory() -> Path:
    directory = Path(str(settings.DATABASES["default"]["NAME"])).parent
    return directory if directory.exists() and os.access(directory, os.R_OK) else Path(settings.MCPHUB_DATA_DIR)
