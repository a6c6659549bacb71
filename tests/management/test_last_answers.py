"""How connections end when `manage.py up` is told to stop: no request that was sent goes without an answer."""

import contextlib
import http.client
import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.management.test_up import CHOSEN_KEY, rows
from tests.wire.client import META, RawClient, call_params

Start = Callable[..., Any]
WAIT_SECONDS = 20.0


class Kept:
    """A connection that is kept open, and the call of a tool on it."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_SECONDS)
        self.connection.connect()

    def ask(self, name: str, arguments: dict[str, Any], accept: str = "application/json") -> None:
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

    def call(self, name: str, **arguments: Any) -> tuple[int, str | None]:
        """The status, and what the answer says of the connection."""
        self.ask(name, arguments)
        answer = self.answer()
        answer.read()
        return answer.status, answer.headers["Connection"]

    def is_closed(self) -> bool:
        """Wait for the end of the connection; False if there came something else."""
        return self.connection.sock.recv(1) == b""


def wait_until_refused(url: str) -> None:
    """Return as soon as nothing listens: from then on there is a second in which standing connections may ask."""
    address = urlsplit(url)
    with contextlib.suppress(ConnectionRefusedError, ConnectionResetError):
        while True:
            socket.create_connection((address.hostname, address.port), WAIT_SECONDS).close()


@pytest.fixture
def hub(up: Start) -> Any:
    return up(MCPHUB_DEMO_API_KEY=CHOSEN_KEY)


@pytest.fixture
def connect(hub: Any) -> Iterator[Callable[[], Kept]]:
    made: list[Kept] = []

    def make() -> Kept:
        made.append(Kept(hub.url))
        return made[-1]

    yield make
    for kept in made:
        kept.connection.close()


def test_what_is_asked_on_a_standing_connection_is_answered_once_more(hub: Any, connect: Callable[[], Kept]) -> None:
    kept = connect()
    assert kept.call("echo", message="x") == (200, None)

    hub.send(signal.SIGTERM)
    wait_until_refused(hub.url)

    assert kept.call("echo", message="x") == (200, "close")
    assert kept.connection.sock is None  # the client has read that there is no more
    assert hub.ended() == (0, "")


def test_a_connection_that_was_never_used_is_answered_too(hub: Any, connect: Callable[[], Kept]) -> None:
    kept = connect()

    hub.send(signal.SIGTERM)
    wait_until_refused(hub.url)

    assert kept.call("echo", message="x") == (200, "close")


def test_an_idle_connection_is_closed_after_a_while(hub: Any, connect: Callable[[], Kept]) -> None:
    used, unused = connect(), connect()
    assert used.call("echo", message="x") == (200, None)

    hub.send(signal.SIGTERM)

    assert used.is_closed()
    assert unused.is_closed()
    assert hub.ended() == (0, "")


def test_a_call_that_runs_is_answered_and_its_answer_is_the_last(
    hub: Any, connect: Callable[[], Kept], tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    kept = connect()
    kept.ask("count", {"n": 20})
    eventually(lambda: rows(tmp_path / "data", "SELECT 1 FROM tools_app_runningcall"))

    hub.send(signal.SIGTERM)
    answer = kept.answer()

    assert (answer.status, answer.headers["Connection"]) == (200, "close")
    assert json.load(answer)["result"]["content"] == [{"type": "text", "text": "20"}]
    assert hub.ended() == (0, "")


def test_a_page_that_is_being_made_is_sent_to_its_end(hub: Any, connect: Callable[[], Kept]) -> None:
    pages = [connect() for _ in range(8)]
    for page in pages:
        page.connection.request("GET", "/admin/login/")

    hub.send(signal.SIGTERM)

    for page in pages:
        answer = page.answer()
        assert answer.status == 200
        assert answer.read().rstrip().endswith(b"</html>")
    assert hub.ended() == (0, "")


def test_a_stream_ends_with_its_connection(hub: Any, connect: Callable[[], Kept]) -> None:
    kept = connect()
    kept.ask("count", {"n": 20}, "text/event-stream")
    answer = kept.answer()
    assert answer.headers["Content-Type"] == "text/event-stream"

    hub.send(signal.SIGTERM)

    assert b'"isError":false' in answer.read()
    assert kept.is_closed()
    assert hub.ended() == (0, "")


def test_what_is_half_sent_when_the_hub_begins_to_stop_is_judged_as_ever_and_answered_last(
    hub: Any, connect: Callable[[], Kept], tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    running, late = connect(), connect()
    running.ask("count", {"n": 50})
    eventually(lambda: rows(tmp_path / "data", "SELECT 1 FROM tools_app_runningcall"))
    late.connection.sock.sendall(b"POST /mcp HTTP/1.1\r\n")

    client = RawClient(hub.url, CHOSEN_KEY)
    with client.http, client.handshake().listening() as listening:
        hub.send(signal.SIGTERM)
        assert listening.ends() == []  # this is when it begins to stop
    late.connection.sock.sendall(b"Host: localhost\r\nContent-Length: 0\r\n\r\n")
    answer = http.client.HTTPResponse(late.connection.sock, method="POST")
    answer.begin()

    assert (answer.status, answer.headers["Connection"]) == (401, "close")  # it carries no key
    assert running.answer().status == 200
    assert hub.ended() == (0, "")


def test_a_request_without_end_is_closed(hub: Any, connect: Callable[[], Kept]) -> None:
    kept = connect()
    kept.connection.sock.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")

    hub.send(signal.SIGTERM)

    assert kept.is_closed()
    assert hub.ended() == (0, "")


def test_a_head_without_end_is_refused(hub: Any, connect: Callable[[], Kept]) -> None:
    kept = connect()
    # Whether its 400 comes through is a matter of chance: a connection that is closed on what it has not read is reset.
    with contextlib.suppress(ConnectionError):
        kept.connection.sock.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"X-More: more\r\n" * 10_000)
        while said := kept.connection.sock.recv(1024):
            assert said.startswith(b"HTTP/1.1 400 ")
