"""Connections when `manage.py up` stops: every request that was sent gets a response."""

import contextlib
import http.client
import json
import shutil
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.processes.hub import Up, environment_of
from tests.processes.test_up import CHOSEN_KEY, rows
from tests.wire.client import META, RawClient, call_params

WAIT_SECONDS = 30.0
CALL_STEPS = 50  # of 100 ms each: longer than a busy machine takes from their start to the signal


class KeptConnection:
    """A connection that is kept open, and the call of a tool on it."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_SECONDS)
        self.connection.connect()

    def send_call(self, name: str, arguments: dict[str, Any], accept: str = "application/json") -> None:
        meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}, "progressToken": 1}
        params = call_params(name, arguments, meta)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {
            "Authorization": f"Bearer {CHOSEN_KEY}",
            "Content-Type": "application/json",
            "Accept": accept,
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        self.connection.request("POST", "/mcp", body, headers)

    def answer(self) -> http.client.HTTPResponse:
        return self.connection.getresponse()

    def called(self) -> tuple[int, str | None]:
        """The status of the response, and its Connection header."""
        answer = self.answer()
        answer.read()
        return answer.status, answer.headers["Connection"]

    def is_closed(self) -> bool:
        """Wait for the end of the connection; False if there came something else."""
        return self.connection.sock.recv(1) == b""


def wait_until_refused(url: str) -> None:
    """Return when nothing listens. From then on, open connections may send requests for one second."""
    address = urlsplit(url)
    with contextlib.suppress(ConnectionRefusedError, ConnectionResetError):
        while True:
            socket.create_connection((address.hostname, address.port), WAIT_SECONDS).close()


@dataclass
class Stopped:
    """Requests sent to a hub before it was stopped, and right after that."""

    ended: tuple[int, str]
    """The exit code, and what stood on stderr."""
    changes: list[Any]
    """The messages of a stream of changes after the signal."""
    asked_again: tuple[int, str | None]
    asked_first: tuple[int, str | None]
    has_read_the_end: bool
    used: KeptConnection
    unused: KeptConnection
    running: http.client.HTTPResponse
    streaming: KeptConnection
    streamed: http.client.HTTPResponse
    pages: list[http.client.HTTPResponse]
    without_end: KeptConnection


@pytest.fixture(scope="module")
def stopped(server: str, migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    """One hub that is stopped during all of these requests: starting one for each test would take a minute."""
    data = tmp_path_factory.mktemp("stopped") / "data"
    data.mkdir(mode=0o700)
    shutil.copy(migrated, data)
    hub = Up(["--server", server], environment_of(data) | {"MCPHUB_DEMO_API_KEY": CHOSEN_KEY})
    with contextlib.ExitStack() as stack:
        stack.callback(hub.kill)
        yield stop_while_in_use(hub, data, stack)


def stop_while_in_use(hub: Up, data: Path, stack: contextlib.ExitStack) -> Stopped:
    def connect() -> KeptConnection:
        connection = KeptConnection(hub.url)
        stack.callback(connection.connection.close)
        return connection

    standing, never_used, used, unused = (connect() for _ in range(4))
    running, streaming, without_end = (connect() for _ in range(3))
    pages = [connect() for _ in range(4)]
    for connection in (standing, used):
        connection.send_call("echo", {"message": "x"})
        assert connection.called() == (200, None)
    without_end.connection.sock.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
    client = RawClient(hub.url, CHOSEN_KEY)
    with client.http, client.handshake().listening() as listening:
        # The calls start last: what comes before the signal must not outlast them.
        streaming.send_call("count", {"n": CALL_STEPS}, "text/event-stream")
        streamed = streaming.answer()
        running.send_call("count", {"n": CALL_STEPS})
        while len(rows(data, "SELECT 1 FROM tools_app_runningcall")) < 2:
            assert hub.is_running()
        for page in pages:
            page.connection.request("GET", "/admin/login/")
        hub.send(signal.SIGTERM)
        wait_until_refused(hub.url)
        for connection in (standing, never_used):
            connection.send_call("echo", {"message": "x"})
        asked_again, asked_first = standing.called(), never_used.called()
        changes = listening.read_to_end()  # from here on it takes no new calls
    return Stopped(
        changes=changes,
        asked_again=asked_again,
        asked_first=asked_first,
        has_read_the_end=standing.connection.sock is None,
        used=used,
        unused=unused,
        running=running.answer(),
        streaming=streaming,
        streamed=streamed,
        pages=[page.answer() for page in pages],
        without_end=without_end,
        ended=hub.wait(),
    )


def test_the_hub_ends_without_a_word(stopped: Stopped) -> None:
    assert stopped.ended == (0, "")


def test_what_is_asked_on_a_standing_connection_is_answered_once_more(stopped: Stopped) -> None:
    assert stopped.asked_again == (200, "close")
    assert stopped.has_read_the_end


def test_a_connection_that_was_never_used_is_answered_too(stopped: Stopped) -> None:
    assert stopped.asked_first == (200, "close")


def test_an_idle_connection_is_closed_after_a_while(stopped: Stopped) -> None:
    assert stopped.used.is_closed()
    assert stopped.unused.is_closed()


def test_a_call_that_runs_is_answered_and_its_answer_is_the_last(stopped: Stopped) -> None:
    assert (stopped.running.status, stopped.running.headers["Connection"]) == (200, "close")
    assert json.load(stopped.running)["result"]["content"] == [{"type": "text", "text": str(CALL_STEPS)}]


def test_a_page_that_is_being_made_is_sent_to_its_end(stopped: Stopped) -> None:
    for page in stopped.pages:
        assert page.status == 200
        assert page.read().rstrip().endswith(b"</html>")


def test_a_stream_of_a_call_ends_with_its_connection(stopped: Stopped) -> None:
    assert stopped.streamed.headers["Content-Type"] == "text/event-stream"
    assert b'"isError":false' in stopped.streamed.read()
    assert stopped.streaming.is_closed()


def test_a_stream_that_waits_for_changes_is_closed_properly(stopped: Stopped) -> None:
    assert stopped.changes == []


def test_a_request_without_end_is_closed(stopped: Stopped) -> None:
    assert stopped.without_end.is_closed()
