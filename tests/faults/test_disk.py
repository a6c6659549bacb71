"""A full disk under SQLite: calls are refused clearly, the hub lives, and goes on when there is space again."""

import errno
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.faults.embedded import Embedded, embedded
from tests.faults.ledger import check_records
from tests.faults.load import loading
from tests.services.stack import eventually

FULL_SECONDS = 4.0
REFUSED_SECONDS = 8.0
ANSWERED_SECONDS = 30.0
SETTLED_SECONDS = 15.0
DISK = "size=24m"


@contextmanager
def a_small_disk(directory: Path) -> Iterator[None]:
    """A file system of its own on `directory`."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "none", directory], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def may_mount() -> bool:
    """Whether this user can have a small disk made; others meet the same faults by a limit on the size of files."""
    refusals = suppress(subprocess.CalledProcessError, FileNotFoundError)
    with tempfile.TemporaryDirectory() as directory, refusals, a_small_disk(Path(directory)):
        return True
    return False


@contextmanager
def filled(hub: Embedded) -> Iterator[None]:
    """Fill the disk to the last byte."""
    ballast = hub.data / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            _fill(lambda size=size: file.write(bytes(size)))
        try:
            yield
        finally:
            ballast.unlink()


def _fill(write: Callable[[], object]) -> None:
    try:
        while write():
            pass
    except OSError as problem:
        assert problem.errno == errno.ENOSPC  # noqa: PT017 - filling it is the point


@contextmanager
def forbidden_to_write(hub: Embedded) -> Iterator[None]:
    """No file may become larger than a page: the system refuses every write to the database."""
    before = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, before)


WAYS = [("limit", forbidden_to_write), *([("disk", filled)] if may_mount() else [])]


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Where the hub keeps its state: a disk of its own, where the test fills it."""
    directory = tmp_path / "data"
    directory.mkdir()
    if "disk" not in request.node.callspec.id:
        yield directory
        return
    with a_small_disk(directory):
        yield directory


def readiness_of(hub: Embedded) -> tuple[int, str]:
    """The status of `/readyz`, and what it says of the recorder."""
    answer = httpx.get(f"{hub.url.removesuffix('/mcp')}/readyz", timeout=10, trust_env=False)
    return answer.status_code, answer.json()["parts"]["recorder"]


@pytest.mark.parametrize("full", [way for _, way in WAYS], ids=[name for name, _ in WAYS])
def test_a_full_disk_has_calls_refused_until_there_is_space_again(
    data: Path, full: Callable[[Embedded], Iterator[None]]
) -> None:
    with embedded(data) as hub:
        with loading([hub.url], hub.key, clients=8, request_timeout=ANSWERED_SECONDS) as load:
            load.wait_for_results()
            with full(hub):
                began = time.monotonic()
                eventually(lambda: readiness_of(hub) == (503, "unavailable"), REFUSED_SECONDS)
                time.sleep(FULL_SECONDS)
                ended = time.monotonic()
            load.wait_for_results()
            assert eventually(lambda: readiness_of(hub) == (200, "ok"), REFUSED_SECONDS)
        check_records(hub, load, settled_within=SETTLED_SECONDS)
        assert hub.process.poll() is None
    meanwhile = [
        attempt for attempt in load.attempts if attempt.started_at > began + 1 and 0 < attempt.ended_at < ended
    ]
    assert {attempt.outcome for attempt in meanwhile} == {"refused"}
    assert max(attempt.seconds for attempt in meanwhile) < REFUSED_SECONDS
    assert load.except_outcomes("result", "refused", "tool_error", "no session") == []
