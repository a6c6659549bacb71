"""The servers of `manage.py up`: which one runs, inherited sockets, and notification of readiness."""

import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from packaging.requirements import Requirement

from tests.processes.hub import ROOT, WAIT_SECONDS
from tools_app.management.commands.up import Command
from tools_app.server.base import bind, url_of


def test_the_server_is_uvicorn_unless_another_one_is_chosen() -> None:
    parse = Command().create_parser("manage.py", "up").parse_args

    assert parse([]).server == "uvicorn"
    assert parse(["--server", "daphne"]).server == "daphne"


def test_uvicorn_comes_with_the_hub() -> None:
    """With what makes it fast, and without an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {Requirement(text).name for text in project["dependencies"]}

    assert {"uvicorn", "httptools", "uvloop", "websockets"} <= required


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


def test_who_connects_while_it_restarts_waits_and_is_answered(
    environment: dict[str, str], migrated: Path, server: str
) -> None:
    data = Path(environment["MCPHUB_DATA_DIR"])
    data.mkdir(mode=0o700)
    shutil.copy(migrated, data)
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
        assert hub.wait() == (0, "")
