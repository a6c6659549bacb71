"""A circuit breaker refuses callers while a server is away: until a probe succeeds, or for a growing delay."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools_app.core import circuit_breaker
from tools_app.core.circuit_breaker import CircuitBreaker


class Server:
    """A server that is away until a test brings it back."""

    def __init__(self) -> None:
        self.is_away = True
        self.probe_count = 0

    def probe(self) -> None:
        self.probe_count += 1
        if self.is_away:
            raise OSError("no answer")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def circuit(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[CircuitBreaker]:
    monkeypatch.setattr(circuit_breaker, "PROBE_SECONDS", 0.01)
    breaker = CircuitBreaker("The server", server.probe, ", and nobody minds")
    yield breaker
    breaker.close()


def messages_of_circuits(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log messages of circuit breakers, without those of the shared hub."""
    return [record.message for record in caplog.records if record.name == circuit_breaker.__name__]


def test_it_is_open_for_as_long_as_the_server_is_away(
    circuit: CircuitBreaker, server: Server, eventually: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert not circuit.is_open
    circuit.trip("it hung up")
    assert eventually(lambda: server.probe_count >= 3)
    assert circuit.is_open
    server.is_away = False
    assert eventually(lambda: not circuit.is_open)
    messages = messages_of_circuits(caplog)
    assert messages[0] == "The server is unavailable, and nobody minds: it hung up"
    assert set(messages[1:-1]) == {"The server is still unavailable: no answer"}
    assert messages[-1] == "The server is available again"


def test_it_opens_again_when_the_server_goes_away_again(
    circuit: CircuitBreaker, server: Server, eventually: Callable[..., Any]
) -> None:
    server.is_away = False
    circuit.trip("once")
    assert eventually(lambda: not circuit.is_open)
    server.is_away = True
    circuit.trip("twice")
    count_before = server.probe_count
    assert eventually(lambda: server.probe_count > count_before)
    assert circuit.is_open


def test_however_often_it_trips_one_daemon_thread_probes(
    circuit: CircuitBreaker, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())
    for number in range(5):
        circuit.trip(number)
    (prober,) = (thread for thread in threading.enumerate() if thread.name == "circuit-probe" and thread not in before)
    assert prober.daemon
    assert len(messages_of_circuits(caplog)) == 1


def test_it_does_not_probe_after_close(circuit: CircuitBreaker, eventually: Callable[..., Any]) -> None:
    circuit.trip("it hung up")
    circuit.close()
    assert eventually(lambda: not circuit.is_open)


def test_without_a_probe_callers_are_refused_for_longer_after_each_further_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(circuit_breaker, "monotonic", lambda: now)
    breaker = CircuitBreaker("The server", failures_to_open=3)
    assert [breaker.trip("it hung up") for _ in range(10)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert (breaker.is_open, breaker.seconds_refused, breaker.problem) == (True, 60, "it hung up")
    now = 61.0
    assert (breaker.is_open, breaker.seconds_refused) == (True, 0)
    breaker.reset()
    assert (breaker.is_open, breaker.trip("again"), breaker.problem) == (False, 0, "again")
