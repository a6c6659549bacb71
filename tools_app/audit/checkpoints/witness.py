"""The witness file: the newest checkpoint of each process, stored outside the database.

`audit.heads`, beside the keys in the data directory, has a line for each process, in the format of
`export_checkpoints`. It contradicts an audit log whose end was cut off, its newest checkpoints included. Each host has
one file, which its processes share. It is replaced as a whole, and no call waits for it.
"""

import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from django.conf import settings

from tools_app.audit.checkpoints.statements import CheckpointText, NotTrusted, Signed, opened, own_key

log = logging.getLogger(__name__)

NAME: Final = "audit.heads"
PRIVATE: Final = 0o600
# Beyond either limit, lines of the processes that signed longest ago are dropped. Later checkpoints of others name
# theirs.
MAX_PROCESSES: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024


def path() -> Path:
    """Return the path of this host's file."""
    return Path(settings.MCPHUB_DATA_DIR) / NAME


def on_stored(forward: Callable[[str], None] | None) -> None:
    """Pass each checkpoint of this process to `forward` too, which must not block; None disables it."""
    _forward[0] = forward


_forward: list[Callable[[str], None] | None] = [None]


def store(signed: Signed) -> None:
    """Store a checkpoint unless the file has a newer one of its process. A failure is logged: the database has it."""
    if (forward := _forward[0]) is not None:
        forward(msgspec.json.encode(signed).decode())
    try:
        text = _checkpoint(signed)
        with _file_lock():
            entries: dict[UUID, tuple[CheckpointText, str]] = {}
            for line in lines():
                # Invalid lines are dropped.
                with suppress(msgspec.MsgspecError, NotTrusted):
                    known = _checkpoint(msgspec.json.decode(line, type=Signed))
                    entries[known.writer] = known, line
            before = entries.get(text.writer)
            if before is None or before[0].sequence < text.sequence:
                entries[text.writer] = text, msgspec.json.encode(signed).decode()
                newest = sorted(entries.values(), key=lambda entry: entry[0].made_at, reverse=True)[:MAX_PROCESSES]
                kept: list[str] = []
                size = 0
                for _, line in newest:
                    size += len(line.encode()) + 1
                    if size > MAX_BYTES and kept:
                        break
                    kept.append(line)
                _replace(kept[::-1])
    except (OSError, NotTrusted) as problem:
        log.warning("The checkpoint is in the database, but not in %s: %s", path(), problem)


def lines(source: Path | None = None) -> list[str]:
    """Return the lines of a witness file, by default of this host's; empty if there is no file. Raises OSError."""
    try:
        with (source or path()).open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_BYTES * 2).splitlines()
    except FileNotFoundError:
        return []


def move_aside(numbers: Iterable[int]) -> Path:
    """Move lines, by their numbers from 1 on, to a separate file and return its path. Raises OSError."""
    gone = set(numbers)
    aside = path().with_name(f"{NAME}.accepted-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    with _file_lock():
        every = list(enumerate(lines(), 1))
        _write(aside, [line for number, line in every if number in gone])
        _replace([line for number, line in every if number not in gone])
    return aside


def _checkpoint(signed: Signed) -> CheckpointText:
    text = opened(signed, frozenset({own_key(), signed.public_key}))
    if not isinstance(text, CheckpointText):
        raise NotTrusted("it is no checkpoint")
    return text


@contextmanager
def _file_lock() -> Iterator[None]:
    """Lock the file against other processes of this host."""
    with path().with_name(f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(new_lines: list[str]) -> None:
    """Replace the file durably: a crash leaves the old one or the new one."""
    draft = path().with_name(f"{NAME}.new")
    _write(draft, new_lines)
    draft.replace(path())
    directory = os.open(path().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(target: Path, new_lines: list[str]) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in new_lines)
        file.flush()
        os.fsync(file.fileno())
