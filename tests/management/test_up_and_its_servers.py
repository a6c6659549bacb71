"""Which server `manage.py up` takes, whose socket it listens on, and whom it tells that it is ready."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.management.conftest import ROOT, WAIT_SECONDS
from tools_app.management import servers
from tools_app.management.listening import bind, url_of


@pytest.fixture
def without_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `pip install -e .`."""
    find = servers.find_spec
    monkeypatch.setattr(servers, "find_spec", lambda name: None if name == "httptools" else find(name))


def test_uvicorn_is_taken_where_it_is_installed() -> None:
    assert servers.default() == "uvicorn"


def test_daphne_is_taken_elsewhere(without_fast: None) -> None:
    assert servers.default() == "daphne"


def test_a_server_that_is_not_installed_is_one_clear_line(without_fast: None) -> None:
    expected = r"^--server uvicorn needs httptools: pip install -e '\.\[fast\]' brings all of it\.$"
    with pytest.raises(CommandError, match=expected):
        call_command("up", server="uvicorn")


@pytest.mark.parametrize(
    ("number", "problem"), [("2", "--processes needs REDIS_URL: "), ("0", "--processes needs at least 1.")]
)
def test_processes_that_cannot_work_are_one_clear_line(manage: Any, number: str, problem: str) -> None:
    ended = manage("up", "--processes", number)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"CommandError: {problem}")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(("number", "problem"), [("0", "is no socket: "), ("999", "is no socket: ")])
def test_a_descriptor_that_is_no_socket_is_one_clear_line(manage: Any, number: str, problem: str) -> None:
    ended = manage("up", "--fd", number)

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"CommandError: --fd: File descriptor {number} {problem}")
    assert ended.stderr.count("\n") == 1


def test_a_descriptor_that_is_another_socket_is_refused_too(environment: dict[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        ended = up_on(other, environment)
        assert ended.wait(WAIT_SECONDS) == 1
        with ended:
            assert ended.stderr.read() == f"CommandError: --fd: File descriptor {other.fileno()} is no TCP socket.\n"


def up_on(listener: socket.socket, environment: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    number = listener.fileno()
    return subprocess.Popen(
        [sys.executable, "manage.py", "up", "--fd", str(number), *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(number,),
        text=True,
    )


@pytest.mark.timeout(120)
def test_who_connects_while_it_restarts_waits_and_is_answered(environment: dict[str, str], server: str) -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        for _ in range(2):
            hub = up_on(listener, environment, "--server", server)
            assert httpx.get(f"{url_of(listener)}/healthz", timeout=WAIT_SECONDS).status_code == 200
            hub.send_signal(signal.SIGTERM)
            with hub:
                assert (hub.wait(WAIT_SECONDS), hub.stderr.read()) == (0, "")


def test_systemd_is_told_when_it_is_ready_and_when_it_stops(up: Callable[..., Any], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(WAIT_SECONDS)
        hub = up(NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert systemd.recv(100) == b"READY=1"
        hub.send(signal.SIGTERM)
        assert systemd.recv(100) == b"STOPPING=1"
        assert hub.ended() == (0, "")
