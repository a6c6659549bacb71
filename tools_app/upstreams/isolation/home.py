"""The total of what a program of an upstream stores in its home.

The kernel bounds each file alone (RLIMIT_FSIZE), and quotas of file systems need root. So it is measured from time to
time, with the files that the program deleted and still has open, and the program is ended.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from django.conf import settings

MAX_BYTES: Final = 2 * 1024**3
MAX_FILES: Final = 100_000
MEASURE_SECONDS: Final = 2.0
BLOCK: Final = 512


class HomeFull(Exception):
    """A home holds too much, or cannot be measured. The message says which."""


def directory_of(upstream_id: UUID) -> Path:
    """Return the directory of an upstream's process: the only one that it may write to."""
    return Path(settings.MCPHUB_DATA_DIR) / "upstreams" / str(upstream_id)


def prepared(upstream_id: UUID) -> Path:
    """Return the directory of an upstream's process, which exists. Raises HomeFull if it holds too much."""
    directory = directory_of(upstream_id)
    for path in (directory, directory / "tmp"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = directory.resolve()
    check(directory)
    return directory


def check(directory: Path, process: int | None = None) -> None:
    """Raise HomeFull if a directory holds too much, together with what `process` and its descendants deleted."""
    size, counted = 0, 0
    counted_inodes: set[int] = set()
    waiting = [str(directory)]
    try:
        device = directory.stat().st_dev
        while waiting:
            with suppress(FileNotFoundError, NotADirectoryError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    counted += 1
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_ino not in counted_inodes:
                            size += status.st_blocks * BLOCK
                        # Other names of the same file take no space.
                        if status.st_nlink > 1:
                            counted_inodes.add(status.st_ino)
                        if stat.S_ISDIR(status.st_mode):
                            waiting.append(entry.path)
                    if counted > MAX_FILES:
                        raise HomeFull(f"Its home holds more than {MAX_FILES} files.")
    except OSError as error:
        # What was hidden from this would be counted by nobody: a path that is too long, or a closed directory.
        raise HomeFull(f"Its home cannot be measured: {error.strerror}.") from error
    if process is not None:
        size += _deleted(process, device)
    if size > MAX_BYTES:
        raise HomeFull(f"Its home holds more than {MAX_BYTES} bytes.")


def _deleted(process: int, device: int) -> int:
    """Return the bytes of deleted files of a device that a process and its descendants have open."""
    sizes: dict[int, int] = {}
    waiting = [process]
    while waiting:
        folder = Path("/proc", str(waiting.pop()))
        with suppress(OSError):  # it has ended, or the kernel lists no children
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            for descriptor in _descriptors(folder):
                with suppress(OSError):
                    status = descriptor.stat()
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                        sizes[status.st_ino] = status.st_blocks * BLOCK
    return sum(sizes.values())


def _descriptors(folder: Path) -> list[Path]:
    """Return the open files of a process. Raises HomeFull if it hides them, and OSError."""
    try:
        return [*(folder / "fd").iterdir()]
    except PermissionError:
        # Those of a process that has ended and was not waited for cannot be read either.
        if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return []
        raise HomeFull("Its home cannot be measured: it hides its open files.") from None
