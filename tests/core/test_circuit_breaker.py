"""A server that is away is asked by one thread whether it is back, and by nobody else."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools_app.core import circuit_breaker
from tools_app.core.circuit_breaker import CircuitBreaker


class Server:
    """It is away until a test lets it come back."""

    def __init__(self) -> None:
        self.is_away = True
        self.asked = 0

    def probe(self) -> None:
        self.asked += 1
        if self.is_away:
            raise OSError("no answer")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def circuit(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[CircuitBreaker]:
    monkeypatch.setattr(circuit_breaker, "PROBE_SECONDS", 0.01)
    made = CircuitBreaker("The server", server.probe, ", and nobody minds")
    yield made
    made.close()


def told_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of circuits, not of the hub that other tests share."""
    return [record.message for record in caplog.records if record.name == circuit_breaker.__name__]


def test_it_is_open_for_as_long_as_the_server_is_away(
    circuit: CircuitBreaker, server: Server, eventually: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert not circuit.is_open
    circuit.trip("it hung up")
    assert eventually(lambda: server.asked >= 3)
    assert circuit.is_open
    server.is_away = False
    assert eventually(lambda: not circuit.is_open)
    told = told_in(caplog)
    assert told[0] == "The server is unavailable, and nobody minds: it hung up"
    assert set(told[1:-1]) == {"The server is still unavailable: no answer"}
    assert told[-1] == "The server is available again"


def test_it_opens_again_when_the_server_goes_away_again(
    circuit: CircuitBreaker, server: Server, eventually: Callable[..., Any]
) -> None:
    server.is_away = False
    circuit.trip("once")
    assert eventually(lambda: not circuit.is_open)
    server.is_away = True
    circuit.trip("twice")
    asked = server.asked
    assert eventually(lambda: server.asked > asked)
    assert circuit.is_open


def test_however_many_find_the_server_away_one_thread_asks_for_it_and_holds_no_process_up(
    circuit: CircuitBreaker, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())
    for number in range(5):
        circuit.trip(number)
    (prober,) = (one for one in threading.enumerate() if one.name == "circuit-probe" and one not in before)
    assert prober.daemon
    assert len(told_in(caplog)) == 1


def test_it_asks_no_more_when_its_user_has_stopped(circuit: CircuitBreaker, eventually: Callable[..., Any]) -> None:
    circuit.trip("it hung up")
    circuit.close()
    assert eventually(lambda: not circuit.is_open)
