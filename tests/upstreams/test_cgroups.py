"""Control groups of programs: where they are delegated, what they limit, and that they go with their program.

A directory stands for the file system of control groups. Where this process can make groups of version 2, the last test
uses a real one, without limits.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.wire.client import RawClient
from tools_app.models import Tenant, Upstream
from tools_app.upstreams import connections, service
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.isolation import cgroups
from tools_app.upstreams.isolation.cgroups import NotDelegated

PROGRAM = Path(__file__).with_name("program.py")
COMMAND = [sys.executable, str(PROGRAM)]
ID = UUID(int=5)


@pytest.fixture(autouse=True)
def _found_anew() -> Iterator[None]:
    clear = cgroups.usable.cache_clear
    clear()
    yield
    clear()


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The group of a service, which systemd has delegated."""
    group = tmp_path / "fs" / "system.slice" / "hub.service"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text("cpu io memory pids\n")
    (group / "cgroup.procs").write_text("")

    def getxattr(path: Path, name: str) -> bytes:
        if (path, name) == (group, "user.delegate"):
            return b"1"
        raise OSError

    monkeypatch.setattr(os, "getxattr", getxattr)
    return group


def process(tmp_path: Path, path: str = "/system.slice/hub.service", *, root: str = "/", kind: str = "cgroup2") -> Path:
    """What the kernel tells a process of its groups."""
    place = tmp_path / "process"
    place.mkdir(exist_ok=True)
    (place / "cgroup").write_text(f"12:pids:/elsewhere\n0::{path}\n")
    mounts = f"21 20 0:5 / /proc rw - proc proc rw\n30 23 0:26 {root} {tmp_path / 'fs'} rw,nosuid - {kind} cgroup rw\n"
    (place / "mountinfo").write_text(mounts)
    return place


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/system.slice/hub.service", "/"),
        # The one above that of the process.
        ("/system.slice/hub.service/hub", "/"),
        # A part of the tree is mounted.
        ("/machine/system.slice/hub.service", "/machine"),
    ],
)
def test_the_group_of_a_service_is_found_if_systemd_delegates_it(
    unit: Path, tmp_path: Path, path: str, root: str
) -> None:
    assert cgroups.delegated(process(tmp_path, path, root=root)) == unit


@pytest.mark.parametrize(
    ("path", "kind", "controllers", "reason"),
    [
        ("/system.slice", "cgroup2", "memory pids", "systemd delegates none"),
        ("/user.slice/session-1.scope", "cgroup2", "memory pids", "systemd delegates none"),
        ("/../other", "cgroup2", "memory pids", "outside of what it sees"),
        ("/system.slice/hub.service", "cgroup", "memory pids", "none of version 2"),
        ("/system.slice/hub.service", "cgroup2", "cpu memory", "lacks the controllers pids"),
    ],
)
def test_without_them_the_reason_is_said(
    unit: Path, tmp_path: Path, path: str, kind: str, controllers: str, reason: str
) -> None:
    (unit / "cgroup.controllers").write_text(controllers)
    with pytest.raises(NotDelegated, match=reason):
        cgroups.delegated(process(tmp_path, path, kind=kind))


def test_a_read_only_group_is_not_used(unit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NotDelegated, match="not writable"):
        cgroups.delegated(process(tmp_path))


def test_a_system_without_control_groups_has_none(tmp_path: Path) -> None:
    with pytest.raises(NotDelegated, match="this system has none"):
        cgroups.delegated(tmp_path)


def test_the_hub_leaves_the_group_that_is_to_limit_others(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, waiting = cgroups._read, ["41\n42\n", ""]
    monkeypatch.setattr(cgroups, "_read", lambda path: waiting.pop(0) if path.name == "cgroup.procs" else read(path))
    assert cgroups.prepared(unit) == unit
    assert (unit / "hub" / "cgroup.procs").read_text() == "42"
    assert waiting == []
    assert (unit / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_a_group_that_cannot_be_arranged_is_not_used(unit: Path) -> None:
    (unit / "cgroup.subtree_control").mkdir()
    with pytest.raises(NotDelegated, match="cannot be arranged"):
        cgroups.prepared(unit)


def test_whether_they_are_used_is_logged_once(
    unit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", cgroups.__name__)
    find = cgroups.delegated
    monkeypatch.setattr(cgroups, "delegated", lambda: find(process(tmp_path, "/user.slice")))
    assert (cgroups.usable(), cgroups.new_group(ID)) == (None, "")
    assert len(caplog.messages) == 1
    assert "run without control groups: systemd delegates none" in caplog.messages[0]
    cgroups.usable.cache_clear()
    monkeypatch.setattr(cgroups, "delegated", lambda: find(process(tmp_path)))
    assert cgroups.usable() == unit
    assert f"run in control groups below {unit}" in caplog.messages[1]


def test_the_groups_of_processes_that_are_gone_are_removed(unit: Path) -> None:
    gone, here = (unit / f"upstream-{owner}-{ID.hex}-1" for owner in (2**22 + 1, os.getpid()))
    gone.mkdir()
    here.mkdir()
    (unit / "another").mkdir()
    cgroups.prepared(unit)
    # A directory that is no group keeps the file, and so stays.
    assert (gone / "cgroup.kill").read_text() == "1"
    assert not list(here.iterdir())


def test_a_group_limits_memory_processes_and_processor_time(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "usable", lambda: unit)
    group = Path(cgroups.new_group(ID))
    assert group.parent == unit
    assert group.name.startswith(f"upstream-{os.getpid()}-{ID.hex}-")
    written = {path.name: path.read_text() for path in group.iterdir()}
    assert written["memory.max"] == str(2 * 1024**3)
    assert written["pids.max"] == "256"
    assert written["cpu.max"] == "100000 100000"


def test_a_group_whose_limits_cannot_be_set_is_not_used(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "usable", lambda: unit)
    monkeypatch.setattr(cgroups, "limit", lambda group: (group / "gone" / "memory.max").write_text("1"))
    assert cgroups.new_group(ID) == ""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, bool]]:
    """A group, and whether it is a real one."""
    group = _real_group()
    if group is None:
        yield tmp_path, False
        return
    # The controllers that limit may belong to version 1 here.
    monkeypatch.setattr(cgroups, "limit", lambda _: None)
    yield group, True
    for each in group.iterdir():
        if each.is_dir():
            cgroups.remove(each)
    group.rmdir()


def _real_group() -> Path | None:
    """Make a group where this process may do so."""
    mounts = Path("/proc/self/mountinfo")
    for _, mount in cgroups._mounted(mounts.read_text().splitlines() if mounts.exists() else []):
        group = mount / f"mcphub-test-{uuid4().hex[:8]}"
        with suppress(OSError):
            group.mkdir()
            return group
    return None


@pytest.mark.slow
def test_a_program_runs_in_its_group_which_ends_with_it(
    base: tuple[Path, bool],
    loopback_tenant: Tenant,
    client: RawClient,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
) -> None:
    place, is_real = base
    monkeypatch.setattr(cgroups, "usable", lambda: place)
    settings.MCPHUB_UPSTREAM_COMMANDS = [shlex.join(COMMAND)]
    settings.MCPHUB_UPSTREAM_PATHS = [str(PROGRAM.parent), sys.base_prefix]
    upstream = Upstream.objects.create(tenant=loopback_tenant, name="program", transport="stdio", command=COMMAND)
    service.accept(service.discover(upstream).items)
    pids = client.peer("2026-07-28").result("spawn", {})["structuredContent"]
    groups = list(place.iterdir()) if not is_real else [one for one in place.iterdir() if one.is_dir()]
    assert groups
    assert all(upstream.pk.hex in group.name for group in groups)
    if is_real:
        for pid in (pids["own"], pids["pid"]):
            assert any(group.name in Path(f"/proc/{pid}/cgroup").read_text() for group in groups)
    else:
        assert {(group / "cgroup.procs").read_text() for group in groups} == {"0"}
    connections.current.stop()
    if is_real:
        eventually(lambda: not any(group.exists() for group in groups))
    else:
        eventually(lambda: all((group / "cgroup.kill").read_text() == "1" for group in groups))


@pytest.mark.slow
def test_a_program_whose_group_is_gone_is_not_started(
    loopback_tenant: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cgroups, "new_group", lambda _: str(tmp_path / "gone"))
    settings.MCPHUB_UPSTREAM_COMMANDS = [shlex.join(COMMAND)]
    settings.MCPHUB_UPSTREAM_PATHS = [str(PROGRAM.parent), sys.base_prefix]
    upstream = Upstream.objects.create(tenant=loopback_tenant, name="program", transport="stdio", command=COMMAND)
    with pytest.raises(UpstreamFailed) as refused:
        service.discover(upstream)
    assert "The program cannot be started" in refused.value.cause
