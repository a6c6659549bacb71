"""Control groups for the programs of stdio upstreams, where systemd delegated some to the hub (cgroup v2).

systemd marks what a service may arrange itself (`Delegate=`). A group with processes cannot limit others below it, so
the hub's own processes are in a group `hub` next to those of programs: `DelegateSubgroup=hub` starts them there, and
with an older systemd they are moved there.
"""

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

log = logging.getLogger(__name__)

PROCESS: Final = Path("/proc/self")
OWN: Final = "hub"
PREFIX: Final = "upstream"
REQUIRED: Final = frozenset({"memory", "pids"})
WANTED: Final = ("memory", "pids", "cpu")
MARKS: Final = ("user.delegate", "trusted.delegate")
# All processes of a program together: bytes, tasks, and microseconds of one processor in each period.
LIMITS: Final = {
    "memory.max": str(2 * 1024**3),
    "memory.swap.max": "0",
    "memory.oom.group": "1",
    "pids.max": "256",
    "cpu.max": "100000 100000",
}
MUST_BE_SET: Final = frozenset({"memory.max", "pids.max"})
MOVING_ROUNDS: Final = 20
REMOVING_ROUNDS, REMOVING_SECONDS = 100, 0.01


class NotDelegated(Exception):
    """There are no control groups that this process can give to programs. The message says why."""


def delegated(process: Path = PROCESS) -> Path:
    """Return the group below which this process may make others. Raises NotDelegated."""
    own_group = _own_group(process)
    group = next(
        (group for group in (own_group, own_group.parent) if any(_has_mark(group, mark) for mark in MARKS)), None
    )
    if group is None:
        raise NotDelegated("systemd delegates none to this process (Delegate=)")
    missing = REQUIRED - set(_read(group / "cgroup.controllers").split())
    if missing:
        raise NotDelegated(f"the delegated group lacks the controllers {', '.join(sorted(missing))}")
    if not os.access(group, os.W_OK):
        raise NotDelegated("the delegated group is not writable (ProtectControlGroups=)")
    return group


def prepared(group: Path) -> Path:
    """Make a delegated group limit those below it. Raises NotDelegated."""
    try:
        _leave(group)
        there = set(_read(group / "cgroup.controllers").split())
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{one}" for one in WANTED if one in there))
    except OSError as error:
        raise NotDelegated(f"the delegated group cannot be arranged: {error.strerror}") from error
    # The groups of hub processes that were killed before they could remove them.
    for left in group.glob(f"{PREFIX}-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            remove(left)
    return group


@cache
def usable() -> Path | None:
    """Return the group for the groups of programs; None where there are none, which is logged once."""
    try:
        group = prepared(delegated())
    except NotDelegated as error:
        log.info("Programs of upstreams run without control groups: %s.", error)
        return None
    log.info("Programs of upstreams run in control groups below %s.", group)
    return group


def new_group(upstream_id: UUID) -> str:
    """Make a group for a program of an upstream, and return its path; "" where control groups are not in use."""
    base = usable()
    if base is None:
        return ""
    group = base / f"{PREFIX}-{os.getpid()}-{upstream_id.hex}-{uuid4().hex[:8]}"
    try:
        group.mkdir()
        limit(group)
    except OSError as error:
        log.warning("A program of an upstream runs without a control group: %s.", error)
        remove(group)
        return ""
    return str(group)


def limit(group: Path) -> None:
    """Set the limits of a group. Raises OSError; only those that each kernel has must be set."""
    for name, value in LIMITS.items():
        try:
            (group / name).write_text(value)
        except OSError:
            if name in MUST_BE_SET:
                raise


def remove(group: Path) -> None:
    """Kill what is in a group, and remove it, if it is still there."""
    with suppress(OSError):
        (group / "cgroup.kill").write_text("1")
    for _ in range(REMOVING_ROUNDS):
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            # What was killed takes a moment to leave it.
            time.sleep(REMOVING_SECONDS)
        else:
            return


def _own_group(process: Path) -> Path:
    """Return the directory of the group of a process. Raises NotDelegated."""
    try:
        lines = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:
        raise NotDelegated("this system has none") from None
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    place = next(_mounted(mounts), None)
    if path is None or place is None:
        raise NotDelegated("this system has none of version 2")
    root, mount = place
    if path.startswith("/.."):
        raise NotDelegated("the group of this process is outside of what it sees")
    return mount / path.removeprefix(root).lstrip("/")


def _mounted(mounts: list[str]) -> Iterator[tuple[str, Path]]:
    """Yield which group is mounted where, of version 2."""
    for line in mounts:
        before, _, after = line.partition(" - ")
        if after.split()[:1] == ["cgroup2"]:
            root, point = before.split()[3:5]
            yield root.rstrip("/"), Path(point.replace("\\040", " "))


def _has_mark(group: Path, mark: str) -> bool:
    try:
        return os.getxattr(group, mark) == b"1"
    except OSError:
        return False


def _leave(group: Path) -> None:
    """Move the processes in a group to one below it. All are the hub's: the group was delegated to it."""
    for _ in range(MOVING_ROUNDS):
        processes = _read(group / "cgroup.procs").split()
        if not processes:
            return
        leaf = group / OWN
        leaf.mkdir(exist_ok=True)
        for process in processes:
            with suppress(ProcessLookupError):
                (leaf / "cgroup.procs").write_text(process)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
