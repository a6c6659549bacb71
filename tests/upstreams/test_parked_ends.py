"""The end of a parked call: it is recorded once, whoever comes to it and whatever fails, and no row is kept on."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError

from tests.upstreams.servers import SdkServer
from tests.upstreams.test_questions import FORMS, all_settled, asking, named, result_text, retried
from tests.wire.client import MODERN, Peer, RawClient
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import parked
from tools_app.calls.parked import ParkedSweeper
from tools_app.models import Call, Outcome, ParkedCall, ParkedStatus
from tools_app.upstreams import connections, parked_rows, parking

# It waits for what ends by itself.
pytestmark = pytest.mark.slow

WAIT_SECONDS = 30.0


@pytest.fixture
def server(sdk_server: Callable[..., SdkServer], add: Any) -> SdkServer:
    """An upstream whose calls are parked."""
    return asking(sdk_server, add, "handshake")


@pytest.fixture
def peer(client: RawClient, server: SdkServer) -> Peer:
    return client.peer(MODERN, FORMS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call of this on, sweeps consider everything as overdue."""
    return lambda: monkeypatch.setattr(parked, "GRACE_SECONDS", -1000.0)


@pytest.fixture
def answering(peer: Peer) -> Iterator[Callable[..., Callable[[], dict[str, Any]]]]:
    """Answer in a thread; what comes back waits for the result."""
    threads = []

    def start(asked: dict[str, Any], **arguments: Any) -> Callable[[], dict[str, Any]]:
        got: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: got.append(answer_questions(peer, asked, **arguments)))
        thread.start()
        threads.append(thread)

        def result() -> dict[str, Any]:
            thread.join(WAIT_SECONDS)
            return got[0]

        return result

    yield start
    for thread in threads:
        thread.join(WAIT_SECONDS)


def answer_questions(peer: Peer, asked: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    answers = dict.fromkeys(asked["inputRequests"], named("Ada"))
    result: dict[str, Any] = retried(peer, "books_ask", asked, answers, **arguments)["result"]
    return result


def outcomes() -> list[str]:
    calls = Call.objects.filter(tool_name="books_ask").order_by("started_at", "id")
    return list(calls.values_list("outcome", flat=True))


def test_a_call_that_was_answered_runs_on_for_as_long_as_its_client_waits(
    peer: Peer,
    answering: Any,
    impatient: Callable[[], None],
    server: SdkServer,
    eventually: Callable[..., Any],
) -> None:
    result = answering(peer.result("books_ask", {"then": "wait"}), then="wait")
    eventually(lambda: ParkedCall.objects.filter(status=ParkedStatus.ANSWERED).exists())
    impatient()
    sweeper = ParkedSweeper()
    for _ in range(5):
        sweeper.sweep()
    assert ParkedCall.objects.get().status == ParkedStatus.ANSWERED
    assert not server.cancelled.is_set()
    # Its holder lets go.
    parked_rows.release(ParkedCall.objects.get().pk)
    assert "was lost" in result_text(result())
    assert all_settled(sweeper)
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]


def test_an_end_that_cannot_be_recorded_is_recorded_later_and_once(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, settings: Any, eventually: Callable[..., Any]
) -> None:
    settings.MCPHUB_ELICITATION_TIMEOUT = 0.1
    for _ in range(2):
        peer.result("books_ask")
    eventually(lambda: not ParkedCall.objects.exclude(status=ParkedStatus.ENDED).exists())

    class Away:
        def record(self, _entry: object) -> None:
            raise RecorderUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(parked.recorder, "current", Away)
        assert not all_settled(ParkedSweeper())
    with monkeypatch.context() as patch:
        # The record is durable, but the process does not get to the deletion.
        patch.setattr(parked, "_delete", lambda _row: 1 / 0)
        assert not all_settled(ParkedSweeper())
    assert all_settled(ParkedSweeper())
    assert sorted(outcomes()) == sorted([Outcome.INPUT_REQUIRED, Outcome.TIMEOUT] * 2)


def test_an_outcome_that_nobody_fetches_is_recorded(
    peer: Peer, impatient: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    asked = peer.result("books_ask", {"patience": 0.2})
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    impatient()
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.TOOL_ERROR]
    assert "not run again" in result_text(answer_questions(peer, asked, patience=0.2))


def test_an_outcome_that_was_fetched_is_recorded_by_the_call_that_fetched_it(
    peer: Peer, impatient: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    asked = peer.result("books_ask", {"patience": 0.2})
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    assert answer_questions(peer, asked, patience=0.2)["isError"]
    impatient()
    assert all_settled(ParkedSweeper())
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.TOOL_ERROR]


@pytest.mark.parametrize("status", [ParkedStatus.ANSWERED, ParkedStatus.ENDED])
def test_a_call_whose_attender_left_no_trace_is_recorded_as_lost(
    peer: Peer, impatient: Callable[[], None], server: SdkServer, status: str, eventually: Callable[..., Any]
) -> None:
    peer.result("books_ask")
    ParkedCall.objects.update(status=status, attender=uuid4())
    impatient()
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]
    assert server.cancelled.wait(WAIT_SECONDS)


@pytest.mark.parametrize("bound", ["MAX_PARKED", "MAX_PARKED_OF_TENANT", "MAX_PARKED_OF_UPSTREAM", "MAX_PARKED_OF_KEY"])
def test_ended_calls_that_nobody_fetched_count_towards_each_bound(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any], bound: str
) -> None:
    monkeypatch.setattr(parked_rows, bound, 1)
    peer.result("books_ask", {"patience": 0.2})
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    assert "Too many calls wait for their clients" in result_text(peer.result("books_ask", {"patience": 0.2}))
    assert ParkedCall.objects.count() == 1


def test_a_large_outcome_is_not_kept_for_a_client_that_may_not_come(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    monkeypatch.setattr(parking, "MAX_STORED_BYTES", 10)
    asked = peer.result("books_ask", {"patience": 0.2})
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    assert "a result of more than 10 bytes" in result_text(answer_questions(peer, asked, patience=0.2))


def test_further_questions_that_are_too_large_end_the_call(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, server: SdkServer
) -> None:
    monkeypatch.setattr(parking, "MAX_STORED_BYTES", 10)
    assert "asked too much" in result_text(answer_questions(peer, peer.result("books_ask", {"times": 2}), times=2))
    assert server.cancelled.wait(WAIT_SECONDS)


def test_a_duplicate_of_an_answer_does_not_take_its_result(
    peer: Peer, answering: Any, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    may_look = threading.Event()
    row_of = parked_rows.row_of

    def late(id: Any) -> Any:
        row = row_of(id)
        if row is not None and row.status == ParkedStatus.ENDED:
            may_look.wait(WAIT_SECONDS)
        return row

    monkeypatch.setattr(parked_rows, "row_of", late)
    asked = peer.result("books_ask")
    first = answering(asked)
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    assert "not run again" in result_text(answer_questions(peer, asked))
    may_look.set()
    assert result_text(first()) == "Ada"


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_answer_that_the_database_does_not_confirm_is_told_as_unknown(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, server: SdkServer, is_stored: bool, eventually: Callable[..., Any]
) -> None:
    """What was stored is cancelled; what was not stored can be answered again."""
    accept = parked_rows.accept

    def failing(*args: Any) -> None:
        if is_stored:
            accept(*args)
        raise OperationalError("the connection broke")

    asked = peer.result("books_ask", {"then": "wait"} if is_stored else {})
    with monkeypatch.context() as patch:
        patch.setattr(parked_rows, "accept", failing)
        result = answer_questions(peer, asked, **({"then": "wait"} if is_stored else {}))
    assert "did not confirm the answer" in result_text(result)
    if is_stored:
        assert server.cancelled.wait(WAIT_SECONDS)
        eventually(lambda: all_settled(ParkedSweeper()))
        assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]
    else:
        assert result_text(answer_questions(peer, asked)) == "Ada"


def test_a_call_that_cannot_be_kept_asks_nobody(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(parked_rows, "insert", away)
    assert "cannot be kept" in result_text(peer.result("books_ask"))


def test_a_call_whose_holder_let_go_is_recorded_once_if_its_client_does_not_come(
    peer: Peer, impatient: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    peer.result("books_ask")
    connections.current.stop()
    assert ParkedCall.objects.get().status == ParkedStatus.ENDED
    impatient()
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]


def test_a_call_whose_holder_let_go_is_recorded_once_if_its_client_comes_after_a_sweep(
    peer: Peer, impatient: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    asked = peer.result("books_ask")
    connections.current.stop()
    for _ in range(3):
        ParkedSweeper().sweep()
    assert "was lost" in result_text(answer_questions(peer, asked))
    impatient()
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]


def test_waiting_calls_are_looked_at_together(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    """Rows are read whole only after a change."""
    for _ in range(3):
        peer.result("books_ask")
    looks: list[int] = []
    read: list[object] = []
    states = parked_rows.states
    monkeypatch.setattr(parked_rows, "states", lambda ids: looks.append(len(ids)) or states(ids))
    eventually(lambda: len(looks) >= 2)
    row_of = parked_rows.row_of
    monkeypatch.setattr(parked_rows, "row_of", lambda id: read.append(id) or row_of(id))
    eventually(lambda: len(looks) >= 4)
    assert set(looks) == {3}
    assert read == []
