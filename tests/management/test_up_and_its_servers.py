"""Which server `manage.py up` takes, whose socket it listens on, and whom it tells that it is ready."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.management.conftest import ROOT, WAIT_SECONDS
from tools_app.management import servers, uvicorn_server
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


# --- uvicorn, where its own bounds end --------------------------------------------------------------------------------


async def application(_scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server that waits for nothing longer than half a second; where it listens."""
    monkeypatch.setattr(uvicorn_server, "IDLE_SECONDS", 0.5)
    with bind("127.0.0.1", 0) as listener:
        server = servers.make("uvicorn", application, listener, 1000)
        ready = threading.Event()
        thread = threading.Thread(target=server.run, args=[ready.set])
        thread.start()
        assert ready.wait(WAIT_SECONDS)
        yield listener.getsockname()

        async def stop() -> None:
            server.stop()

        server.spawn(stop)
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12"]
)
def test_a_request_that_does_not_come_to_its_end_is_not_waited_for(impatient: tuple[str, int], said: bytes) -> None:
    with socket.create_connection(impatient, WAIT_SECONDS) as client:
        client.sendall(said)
        assert client.recv(1000) == b""
