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

from tools_app.core.telemetry import tracing
from tools_app.doctor.configuration import is_on_sqlite
from tools_app.doctor.findings import Finding, grade, ok, problem
from tools_app.runtime.metrics_publisher import hub_version

MIN_PYTHON_VERSION = (3, 11)
EXTRAS = {"postgres": "psycopg", "redis": "channels_redis", "otel": "opentelemetry-sdk"}
WARNING_BYTES = 1024**3
PROBLEM_BYTES = 100 * 1024**2
MIN_DESCRIPTORS = 4096
SECRET_FILES = ("secret.key", "audit.key")
OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO
# File locks and memory maps, which SQLite requires, do not work there.
NETWORK_FILE_SYSTEMS = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|ceph|glusterfs|lustre|afs|fuse\.(?:sshfs|s3fs|rclone|gcsfuse)"
)


def python() -> Iterator[Finding]:
    """Check the Python version."""
    versions = f"Python {platform.python_version()}, mcphub {hub_version()}"
    oldest = ".".join(map(str, MIN_PYTHON_VERSION))
    is_too_old = tuple(sys.version_info) < MIN_PYTHON_VERSION
    yield grade("python", versions, f"Use Python {oldest} or newer.", is_problem=is_too_old)


def packages() -> Iterator[Finding]:
    """Check the installed packages against the requirements."""
    required = [Requirement(text) for text in requires("mcphub") or [] if "extra ==" not in text]
    problems = [message for requirement in required if (message := _requirement_problem(requirement))]
    for message in problems:
        yield problem("packages", message, "Reinstall the hub: pip install -c constraints.txt -e .")
    if not problems:
        yield ok("packages", "all required packages are installed in supported versions")


def _requirement_problem(requirement: Requirement) -> str:
    """Return why an installed package does not fit; "" if it does."""
    if requirement.marker is not None and not requirement.marker.evaluate():
        return ""
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(installed, prereleases=True):
        return ""
    return f"{requirement.name} is {installed}, the hub requires {requirement.specifier}"


def extras() -> Iterator[Finding]:
    """Check the extras that the settings require."""
    is_required_by_extra = {
        "postgres": settings.DATABASES["default"]["ENGINE"].endswith("postgresql"),
        "redis": bool(settings.REDIS_URL),
        "otel": tracing.is_wanted(),
    }
    for extra, is_required in is_required_by_extra.items():
        if is_required:
            status = "installed" if _is_installed(extra) else "missing, but required by the settings"
            yield grade(
                "packages",
                f"the extra {extra} is {status}",
                f"pip install -e '.[{extra}]'",
                is_problem=not _is_installed(extra),
            )


def _is_installed(extra: str) -> bool:
    try:
        version(EXTRAS[extra])
    except PackageNotFoundError:
        return False
    return True


def data_directory() -> Iterator[Finding]:
    """Check the permissions of the data directory."""
    path = Path(settings.MCPHUB_DATA_DIR)
    yield _private_finding("data directory", path, 0o700)
    for name in SECRET_FILES:
        if (path / name).exists():
            yield _private_finding(name, path / name, 0o600)
    if is_on_sqlite():
        yield _private_finding("database file", Path(str(settings.DATABASES["default"]["NAME"])), 0o600)


def _private_finding(about: str, path: Path, expected_mode: int) -> Finding:
    if not path.exists():
        return ok(about, f"{path} does not exist yet")
    mode = stat.S_IMODE(path.stat().st_mode)
    is_parent_private = stat.S_IMODE(path.parent.stat().st_mode) & OTHER_USERS == 0
    is_exposed = bool(mode & OTHER_USERS) and not is_parent_private
    description = f"{path}, mode {mode:o}"
    is_secret = path.name in SECRET_FILES
    return grade(
        about,
        f"{description}: accessible to other users" if is_exposed else description,
        f"chmod {expected_mode:o} {path}",
        is_problem=is_exposed and is_secret,
        is_warning=is_exposed,
    )


def disk() -> Iterator[Finding]:
    """Check the free disk space: the hub refuses calls that it cannot record."""
    path = _database_directory() if is_on_sqlite() else Path(settings.MCPHUB_DATA_DIR)
    free = shutil.disk_usage(path).free
    yield grade(
        "disk",
        f"{free / WARNING_BYTES:.1f} GiB free at {path}",
        "Free disk space, or set MCPHUB_KEEP_DAYS: calls are rejected when their records cannot be stored.",
        is_problem=free < PROBLEM_BYTES,
        is_warning=free < WARNING_BYTES,
    )


def file_system() -> Iterator[Finding]:
    """Check the file system of the SQLite file."""
    if not is_on_sqlite():
        return
    kind = file_system_of(_database_directory())
    yield grade(
        "file system",
        f"the database is on {kind}",
        "Move MCPHUB_DATA_DIR to a local disk: SQLite loses data on network file systems. Or use PostgreSQL.",
        is_problem=bool(NETWORK_FILE_SYSTEMS.fullmatch(kind)),
    )


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system of `path`; "unknown" where the system does not report it."""
    if not mounts.exists():
        return "unknown"
    best_point, kind = Path("/"), "unknown"
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount_point = Path(before.split()[4].replace("\\040", " "))
        if (
            path.resolve().is_relative_to(mount_point)
            and mount_point.parts >= best_point.parts[: len(mount_point.parts)]
        ):
            best_point, kind = (
                (mount_point, after.split()[0])
                if len(mount_point.parts) >= len(best_point.parts)
                else (best_point, kind)
            )
    return kind


def descriptors() -> Iterator[Finding]:
    """Check the maximum number of open files, which limits connections."""
    limits = Path("/proc/self/limits")
    allowed = re.search(r"Max open files\s+(\d+)", limits.read_text()) if limits.exists() else None
    if allowed is None:
        return
    yield grade(
        "open files",
        f"{allowed[1]} allowed for a process",
        f"Raise the limit to at least {MIN_DESCRIPTORS} (ulimit -n, LimitNOFILE=): each open stream needs one.",
        is_warning=int(allowed[1]) < MIN_DESCRIPTORS,
    )


def _database_directory() -> Path:
    directory = Path(str(settings.DATABASES["default"]["NAME"])).parent
    return directory if directory.exists() and os.access(directory, os.R_OK) else Path(settings.MCPHUB_DATA_DIR)
