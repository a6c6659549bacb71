"""The hub's processes, as the operating system sees them."""

import os
from dataclasses import dataclass
from pathlib import Path

from tests.services.stack import Running

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    """One process: its resident memory in bytes, its open files and its threads."""

    pid: int
    rss: int
    fds: int
    threads: int


def family(running: Running) -> list[Process]:
    """A process of the hub and its children, the eldest first."""
    found = []
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            if os.getpgid(int(entry.name)) == running.process.pid:
                found.append(_process(entry))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _process(entry: Path) -> Process:
    return Process(
        pid=int(entry.name),
        rss=int((entry / "statm").read_text().split()[1]) * PAGE,
        fds=len(list((entry / "fd").iterdir())),
        threads=len(list((entry / "task").iterdir())),
    )
