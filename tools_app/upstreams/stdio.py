"""The stdio transport: an upstream as a process of this hub, one JSON message in each line.

The process belongs to one tenant and one set of credentials. Its environment holds nothing of the hub's. A launcher
isolates it, and ends all that it started.
"""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from django.conf import settings

from tools_app.catalog.kinds.upstream.runner import Endpoint
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.protocol import exact_json
from tools_app.upstreams.client import Message
from tools_app.upstreams.duplex import DuplexTransport
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.http import parsed
from tools_app.upstreams.isolation import cgroups, home, launcher
from tools_app.upstreams.isolation.process import PipedProcess
from tools_app.upstreams.validation import NOT_ALLOWED, is_allowed_command, variable_fault

log = logging.getLogger(__name__)

LAUNCHER: Final = Path(launcher.__file__)
# Time to end after the input was closed, and after the launcher was told to kill.
END_SECONDS, KILL_SECONDS = 1.0, 5.0
MAX_UNWRITTEN_BYTES: Final = 16 * 1024 * 1024
MAX_STDERR_BYTES: Final = 4096
MAX_LINE_BYTES: Final = 512
# What programs of all kinds need, and no secrets: of /etc, only what describes the system.
SYSTEM_PATHS: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/dev/zero", "/dev/random", "/dev/urandom"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf"),
    *("/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/localtime", "/etc/ld.so.cache", "/etc/alternatives"),
    *("/etc/mime.types", "/etc/services", "/etc/protocols", "/etc/gai.conf", "/proc/cpuinfo", "/proc/meminfo"),
)
WRITABLE: Final = ("/dev/null",)
LANGUAGE: Final = "C.UTF-8"


class StdioTransport(DuplexTransport):
    """The process of one upstream."""

    def __init__(self, endpoint: Endpoint, max_bytes: int) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._command = list(endpoint.command)
        self._environment = dict(endpoint.environment)
        self._max_bytes = max_bytes
        self._scrubber = Scrubber(endpoint.secrets)
        self._process: PipedProcess | None = None
        self._cgroup = ""
        self._readers: list[asyncio.Task[None]] = []
        self._stderr = bytearray()
        self._measuring: asyncio.Task[None] | None = None

    async def _open(self) -> None:
        if not (self._endpoint.is_approved or is_allowed_command(self._command)):
            raise UpstreamFailed(NOT_ALLOWED, sent=False)
        for name, value in self._environment.items():
            if fault := variable_fault(name):  # rows may be older than the rule
                raise UpstreamFailed(f"The variable {name[:100]!r} cannot be used: {fault}", sent=False)
            if "\0" in value:
                raise UpstreamFailed(f"The value of the variable {name} cannot be used.", sent=False)
        program = shutil.which(self._command[0])
        if program is None:
            raise UpstreamFailed(f"The program {self._command[0]!r} is not installed on the hub.", sent=False)
        try:
            directory = await asyncio.to_thread(home.prepared, self._endpoint.id)
        except home.HomeFull as error:
            raise UpstreamFailed(
                f"The upstream's program is not started. {error}",
                f"See {home.directory_of(self._endpoint.id)}.",
                sent=False,
            ) from error
        files, directories = _named_paths(self._command[1:]) if self._endpoint.is_approved else ([], [])
        self._cgroup = await asyncio.to_thread(cgroups.new_group, self._endpoint.id)
        specification = {
            "directory": str(directory),
            "readable": readable_paths(program, files),
            "writable": [*WRITABLE, str(directory), *directories],
            "network": settings.MCPHUB_UPSTREAM_NETWORK,
            "cgroup": self._cgroup,
        }
        _warn_of_missing_isolation()
        path = os.environ.get("PATH", os.defpath)
        environment = {
            "PATH": path,
            "HOME": str(directory),
            "TMPDIR": str(directory / "tmp"),
            "LANG": LANGUAGE,
            # Git fails if it must not read the configuration of the system, which may hold credentials.
            "GIT_CONFIG_NOSYSTEM": "1",
            **self._environment,
        }
        try:
            self._process = await PipedProcess.start(
                (
                    *(sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid())),
                    *(exact_json.dumps(specification).decode(), program, *self._command[1:]),
                ),
                # The launcher is not isolated itself, so nothing in its environment is the tenant's.
                {"PATH": path, "LANG": LANGUAGE, launcher.ENVIRONMENT: exact_json.dumps(environment).decode()},
                self._max_bytes,
            )
        except OSError as error:
            raise UpstreamFailed("The upstream's process cannot be started.", str(error), sent=False) from error
        except (TypeError, ValueError):
            # Their texts may hold a secret.
            raise UpstreamFailed("The upstream's process cannot be started.", "invalid text", sent=False) from None
        loop = asyncio.get_running_loop()
        self._readers = [loop.create_task(self._read()), loop.create_task(self._read_stderr())]
        self._measuring = loop.create_task(self._measure(directory))

    async def _write(self, message: Message, _headers: Mapping[str, str]) -> None:
        process = self._process
        assert process is not None
        if process.stdin.transport.get_write_buffer_size() > MAX_UNWRITTEN_BYTES:
            raise UpstreamFailed("The upstream's process does not read its input.", sent=False)
        try:
            process.stdin.write(exact_json.dumps(message) + b"\n")
            await process.stdin.drain()
        except (OSError, RuntimeError) as error:
            raise UpstreamFailed("The upstream's process has ended.", str(error)) from error

    async def _shut(self) -> None:
        try:
            if self._process is not None:
                await self._end(self._process)
        finally:
            if self._cgroup:
                # Its launcher has removed it, unless that was killed, or not started.
                await asyncio.to_thread(cgroups.remove, Path(self._cgroup))

    async def _end(self, process: PipedProcess) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
        process.stdin.close()
        try:
            for seconds, end in ((END_SECONDS, process.popen.terminate), (KILL_SECONDS, process.popen.kill)):
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await process.ended.wait()
                end()
        except asyncio.CancelledError:
            # The time to close the client is over, which is told of cancelled calls before.
            process.popen.kill()
            raise
        await process.ended.wait()
        for reader in self._readers:
            reader.cancel()
        process.close()

    async def _read(self) -> None:
        """Read messages until the process ends its output, or writes one that is invalid."""
        assert self._process is not None
        message, cause = "The upstream's process has ended. The call may have run.", ""
        try:
            while line := await self._process.stdout.readline():
                if line.strip():
                    self.received(await parsed(line))
        except ValueError:
            message = f"The upstream sent a message of more than {self._max_bytes} bytes."
        except UpstreamFailed as error:
            message, cause = error.message, error.cause
        if not cause:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await asyncio.gather(*self._readers[1:], return_exceptions=True)
            cause = self._scrubber.text(self._stderr.decode("utf-8", "replace")).strip()
        self.ended(message, cause)
        self._process.popen.terminate()

    async def _measure(self, directory: Path) -> None:
        """End the process once its home holds too much."""
        assert self._process is not None
        while not self.is_closed:
            began = asyncio.get_running_loop().time()
            try:
                await asyncio.to_thread(home.check, directory, self._process.popen.pid)
            except home.HomeFull as error:
                log.warning("The program of upstream %s is ended. %s", self._endpoint.id, error)
                self.ended(f"The upstream's process was ended. {error} The call may have run.")
                self._process.popen.terminate()
                return
            # A large home is measured less often.
            took = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(home.MEASURE_SECONDS, 10 * took))

    async def _read_stderr(self) -> None:
        """Keep the end of what the process writes to stderr, for the audit log."""
        assert self._process is not None
        while chunk := await self._process.stderr.read(MAX_STDERR_BYTES):
            self._stderr += chunk
            del self._stderr[:-MAX_STDERR_BYTES]


def readable_paths(program: str, more: Sequence[str] = ()) -> list[str]:
    """Return what a program may read and execute. Raises UpstreamFailed if the hub's own data would be among it."""
    paths = [*SYSTEM_PATHS, *settings.MCPHUB_UPSTREAM_PATHS, *_installation(Path(program)), *more]
    readable = [str(Path(path).resolve()) for path in paths if Path(path).exists()]
    data = Path(settings.MCPHUB_DATA_DIR).resolve()
    for path in readable:
        if data.is_relative_to(path):
            raise UpstreamFailed(
                "The command is not started: it could read the hub's own data.",
                f"MCPHUB_DATA_DIR is within {path}, which the command may read",
                sent=False,
            )
    return readable


def _installation(program: Path) -> list[str]:
    """Return the directories that a program is installed in: its environment, such as a venv, or its directory.

    A script needs those of its interpreter, too, which its first line names.
    """
    with program.open("rb") as file:
        line = file.readline(MAX_LINE_BYTES)
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    interpreter = shutil.which(words[0]) if words else None
    directories = []
    for file in (program, *((Path(interpreter),) if interpreter else ())):
        for place in dict.fromkeys((file, file.resolve())):
            prefix = place.parent.parent
            is_prefix = place.parent.name == "bin" and (prefix / "lib").is_dir()
            directories.append(str(prefix if is_prefix and prefix not in {Path("/"), Path.home()} else place.parent))
    return directories


def _named_paths(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what the arguments of a command that the operator approved let it read, and the directories to write to.

    A file stands for the directory that it is in, and for the `node_modules` around that. A directory, such as the root
    of a server for files, is written to as well.
    """
    directories, readable = [], []
    shared = {Path("/"), Path("/tmp"), Path.home()}  # noqa: S108 - it is not written to
    for path in (Path(word).resolve() for word in words if word.startswith("/")):
        if path.is_dir():
            directories.append(str(path))
        elif path.is_file():
            modules = [parent for parent in path.parents if parent.name == "node_modules"]
            around = path if path.parent in shared else path.parent
            readable.append(str(modules[-1] if modules else around))
    return [*directories, *readable], directories


@cache
def _warn_of_missing_isolation() -> None:
    if not launcher.landlock_version():
        log.warning("The kernel has no Landlock: commands of upstreams can read all that this user can read.")
    if not (settings.MCPHUB_UPSTREAM_NETWORK or launcher.has_seccomp()):
        log.warning("The kernel has no seccomp: commands of upstreams can open UNIX sockets and send UDP.")
