"""What `manage.py up` keeps when it is restarted or killed: sessions, and every record."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.test_up import CHOSEN_KEY, rows
from tests.wire.client import Peer, RawClient, call_params, text_of

Start = Callable[..., Any]
Connect = Callable[..., RawClient]


@pytest.fixture
def client_of() -> Iterator[Connect]:
    """A client of a hub, closed with the test."""
    clients: list[RawClient] = []

    def make(hub: Any) -> RawClient:
        clients.append(RawClient(hub.url, CHOSEN_KEY))
        return clients[-1]

    yield make
    for client in clients:
        client.http.close()


def start(up: Start, port: int = 0) -> Any:
    """A hub whose key the test knows; on `port`, so that a client finds it again."""
    return up("--port", str(port), MCPHUB_DEMO_API_KEY=CHOSEN_KEY)


def recorded(data: Path, tool: str) -> list[tuple[object, ...]]:
    query = (
        "SELECT outcome, arguments, result FROM tools_app_call JOIN tools_app_callpayload ON call_id = id"
        f" WHERE tool_name = '{tool}' ORDER BY started_at"
    )
    return rows(data, query)


def test_a_hub_that_is_killed_loses_no_answer_and_tells_which_call_was_lost(
    up: Start, client_of: Connect, tmp_path: Path
) -> None:
    hub = start(up)
    peer = client_of(hub).peer("2026-07-28")
    for turn in range(30):
        assert text_of(peer.call("echo", {"message": str(turn)})) == f"hello {turn}"
    with peer.stream("tools/call", call_params("count", {"n": 600}, {"progressToken": "t"})) as stream:
        stream.next()
        hub.kill()

    calls = recorded(tmp_path / "data", "echo")
    assert [arguments for _, arguments, _ in calls] == [f'{{"message":"{turn}"}}' for turn in range(30)]
    assert {outcome for outcome, _, _ in calls} == {"ok"}
    again = up(MCPHUB_PROCESS_TIMEOUT="1")
    stream = client_of(again).peer("2026-07-28").call("count", {"n": 20})
    assert text_of(stream) == "20"
    assert [outcome for outcome, _, _ in recorded(tmp_path / "data", "count")] == ["lost", "ok"]


def test_a_session_outlives_a_restart(up: Start, client_of: Connect) -> None:
    first = start(up)
    session = client_of(first).handshake()
    first.send(signal.SIGTERM)
    assert first.wait() == (0, "")

    again = client_of(start(up))
    peer = Peer(again, session.version, session.session_id)
    assert text_of(peer.call("echo", {"message": "again"})) == "hello again"
