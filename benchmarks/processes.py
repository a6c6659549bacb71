"""Server processes, each on the cores it is given, and all gone when their block ends."""

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hub import PROJECT

START_SECONDS = 60.0
STOP_SECONDS = 20.0
TICK_SECONDS = 0.01
HOST = "127.0.0.1"


class NotStarted(Exception):
    """A server ended, or did not answer in time. The text shows what it wrote."""


@dataclass(frozen=True)
class Running:
    """A server process that answers on a port."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def wait_for(self, path: str) -> None:
        """Return when `path` is answered with 200. Raises NotStarted."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise NotStarted(f"it ended with {self.process.returncode}:\n{self.log.read_text(errors='replace')}")
            with suppress(OSError, http.client.HTTPException):
                if _status(self.port, path) == http.HTTPStatus.OK:
                    return
            time.sleep(TICK_SECONDS)
        raise NotStarted(f"{path} is not answered:\n{self.log.read_text(errors='replace')}")

    def wait_until_open(self) -> None:
        """Return when it accepts connections. Raises NotStarted."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise NotStarted(f"it ended with {self.process.returncode}:\n{self.log.read_text(errors='replace')}")
            with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
                return
            time.sleep(TICK_SECONDS)
        raise NotStarted(f"port {self.port} is closed:\n{self.log.read_text(errors='replace')}")

    def memory(self) -> int:
        """Bytes that it holds in memory (VmRSS)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

    def processor_seconds(self) -> float:
        """Processor time of all its threads that live, in seconds."""
        nanoseconds = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            # A thread may end between the two.
            with suppress(FileNotFoundError, ProcessLookupError):
                nanoseconds += int((task / "schedstat").read_text().split()[0])
        return nanoseconds / 1e9


@contextmanager
def started(
    command: list[str], environment: Mapping[str, str], cores: str, folder: Path, port: int = 0
) -> Iterator[Running]:
    """A process on these cores, with its children ended when the block ends. PORT in its command is its port."""
    port = port or free_port()
    log = folder / f"{port}.log"
    full_command = ["taskset", "-c", cores, *(word.replace("PORT", str(port)) for word in command)]
    with log.open("ab") as out:
        process = subprocess.Popen(
            full_command, cwd=PROJECT, env=dict(environment), stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield Running(process, port, log)
    finally:
        _stop(process)


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end; whatever is left of its group after that is killed."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()
