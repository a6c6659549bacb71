"""A process that has loaded the hub, and runs each management command in a forked child.

Loading the hub takes longer than nearly every command. A child ends as a command does: with its exit handlers.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
END_SECONDS = 30.0
MAX_REQUEST_BYTES = 2**17


class CommandServer:
    """Runs commands, also several at once, with one environment."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.services.commands", str(theirs.fileno())],
                cwd=ROOT,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(self, arguments: tuple[str, ...], timeout: float) -> "subprocess.CompletedProcess[str]":
        """Run a command as `manage.py` does. Raises TimeoutError."""
        ours, theirs = socket.socketpair()
        with ours, tempfile.TemporaryDirectory() as home:
            with theirs:
                output, errors = Path(home, "output"), Path(home, "errors")
                request = json.dumps([arguments, str(output), str(errors)])
                socket.send_fds(self._ours, [request.encode()], [theirs.fileno()])
            ours.settimeout(timeout)
            code = ours.recv(16)
            assert code, "the process that runs commands has ended"
            return subprocess.CompletedProcess(arguments, int(code), output.read_text(), errors.read_text())

    def stop(self) -> None:
        """End the process, and commands that still run."""
        self._ours.close()
        self._process.wait(END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _serve(requests: socket.socket) -> None:
    import django  # noqa: PLC0415 - only this process loads it

    from mcphub import startup  # noqa: PLC0415 - the same

    django.setup()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 1)
        if not message:
            return
        (reply,) = descriptors
        if not os.fork():
            break
        os.close(reply)
    # A process for each command waits for it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    requests.close()
    if command := os.fork():
        _, status = os.waitpid(command, 0)
        os.write(reply, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(reply)
    arguments, output, errors = json.loads(message)
    for descriptor, file in enumerate((os.devnull, output, errors)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), descriptor)
    sys.argv = ["manage.py", *arguments]
    startup.main()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
