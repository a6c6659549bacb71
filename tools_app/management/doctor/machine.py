"""The host: the data directory and its disk, files that hold secrets, and how many files may be open."""

import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from tools_app.management.doctor.configuration import is_on_sqlite
from tools_app.management.doctor.findings import Finding, judged, ok

ENOUGH_BYTES = 1024**3
LEAST_BYTES = 100 * 1024**2
ENOUGH_DESCRIPTORS = 4096
SECRET_FILES = ("secret.key", "audit.key")
OTHERS = stat.S_IRWXG | stat.S_IRWXO
# Locks and memory maps, on which SQLite stands, do not hold there.
NETWORK_FILE_SYSTEMS = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|ceph|glusterfs|lustre|afs|fuse\.(?:sshfs|s3fs|rclone|gcsfuse)"
)


def data_directory() -> Iterator[Finding]:
    """Who may read what stands there."""
    path = Path(settings.MCPHUB_DATA_DIR)
    yield _private("data directory", path, 0o700)
    for name in SECRET_FILES:
        if (path / name).exists():
            yield _private(name, path / name, 0o600)
    if is_on_sqlite():
        yield _private("database file", Path(str(settings.DATABASES["default"]["NAME"])), 0o600)


def _private(about: str, path: Path, wanted: int) -> Finding:
    if not path.exists():
        return ok(about, f"{path} is not there yet")
    mode = stat.S_IMODE(path.stat().st_mode)
    in_private = stat.S_IMODE(path.parent.stat().st_mode) & OTHERS == 0
    exposed = bool(mode & OTHERS) and not in_private
    said = f"{path}, mode {mode:o}"
    is_secret = path.name in SECRET_FILES
    return judged(
        about,
        f"{said}: others may reach it" if exposed else said,
        f"chmod {wanted:o} {path}",
        bad=exposed and is_secret,
        doubtful=exposed,
    )


def disk() -> Iterator[Finding]:
    """Room for records: the hub refuses calls that it cannot record."""
    place = _database_directory() if is_on_sqlite() else Path(settings.MCPHUB_DATA_DIR)
    free = shutil.disk_usage(place).free
    yield judged(
        "disk",
        f"{free / ENOUGH_BYTES:.1f} GiB free at {place}",
        "Make room, or set MCPHUB_KEEP_DAYS: calls are refused when their records do not fit on the disk.",
        bad=free < LEAST_BYTES,
        doubtful=free < ENOUGH_BYTES,
    )


def file_system() -> Iterator[Finding]:
    """Where the SQLite file lies."""
    if not is_on_sqlite():
        return
    kind = file_system_of(_database_directory())
    yield judged(
        "file system",
        f"the database lies on {kind}",
        "Move MCPHUB_DATA_DIR to a local disk: SQLite loses data on network file systems. Or use PostgreSQL.",
        bad=bool(NETWORK_FILE_SYSTEMS.fullmatch(kind)),
    )


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system under `path`; "unknown" where the system does not tell."""
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
    """How many files, and so connections, a process may have open."""
    limits = Path("/proc/self/limits")
    allowed = re.search(r"Max open files\s+(\d+)", limits.read_text()) if limits.exists() else None
    if allowed is None:
        return
    yield judged(
        "open files",
        f"{allowed[1]} allowed for a process",
        f"Raise the limit to at least {ENOUGH_DESCRIPTORS} (ulimit -n, LimitNOFILE=): each open stream needs one.",
        doubtful=int(allowed[1]) < ENOUGH_DESCRIPTORS,
    )


def _database_directory() -> Path:
    directory = Path(str(settings.DATABASES["default"]["NAME"])).parent
    return directory if directory.exists() and os.access(directory, os.R_OK) else Path(settings.MCPHUB_DATA_DIR)
