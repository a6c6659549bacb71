"""The end of a parked call is recorded exactly once, whatever fails, and its row is deleted."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError

from tests.conftest import chores
from tests.upstreams.servers import SdkServer
from tests.upstreams.test_questions import FORMS, accept_name, add_asking_upstream, all_settled, result_text, retry
from tests.wire.client import MODERN, Peer, RawClient
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import parked
from tools_app.calls.parked import ParkedSweeper
from tools_app.models import Call, Outcome, ParkedCall, ParkedStatus
from tools_app.upstreams import connections, parking

# These tests wait for timeouts.
pytestmark = pytest.mark.slow

WAIT_SECONDS = 30.0


@pytest.fixture
def server(sdk_server: Callable[..., SdkServer], add_upstream: Any) -> SdkServer:
    """An upstream whose calls are parked."""
    return add_asking_upstream(sdk_server, add_upstream, "handshake")


@pytest.fixture
def peer(client: RawClient, server: SdkServer) -> Peer:
    return client.peer(MODERN, FORMS)


@pytest.fixture
def make_overdue(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From this call on, sweeps consider every parked call overdue."""
    return lambda: monkeypatch.setattr(parked, "GRACE_SECONDS", -1000.0)


@pytest.fixture
def answer_in_thread(peer: Peer) -> Iterator[Callable[..., Callable[[], dict[str, Any]]]]:
    """Answer in a thread. The function that is returned waits for the result."""
    threads = []

    def start(input_required: dict[str, Any], **arguments: Any) -> Callable[[], dict[str, Any]]:
        results: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: results.append(answer_questions(peer, input_required, **arguments)))
        thread.start()
        threads.append(thread)

        def result() -> dict[str, Any]:
            thread.join(WAIT_SECONDS)
            return results[0]

        return result

    yield start
    for thread in threads:
        thread.join(WAIT_SECONDS)


def answer_questions(peer: Peer, input_required: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    responses = dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    result: dict[str, Any] = retry(peer, "books_ask", input_required, responses, **arguments)["result"]
    return result


def outcomes() -> list[str]:
    calls = Call.objects.filter(tool_name="books_ask").order_by("started_at", "id")
    return list(calls.values_list("outcome", flat=True))


def test_a_call_that_was_answered_runs_on_for_as_long_as_its_client_waits(
    peer: Peer,
    answer_in_thread: Any,
    make_overdue: Callable[[], None],
    server: SdkServer,
    eventually: Callable[..., Any],
) -> None:
    result = answer_in_thread(peer.result("books_ask", {"then": "wait"}), then="wait")
    eventually(lambda: ParkedCall.objects.filter(status=ParkedStatus.ANSWERED).exists())
    make_overdue()
    sweeper = ParkedSweeper()
    for _ in range(5):
        sweeper.sweep()
    assert ParkedCall.objects.get().status == ParkedStatus.ANSWERED
    assert not server.cancelled.is_set()
    # The process that holds the call releases it.
    parking.release(ParkedCall.objects.get().pk)
    assert "was lost" in result_text(result())
    assert all_settled(sweeper)
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]


def test_an_end_that_cannot_be_recorded_is_recorded_later_and_once(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, settings: Any, eventually: Callable[..., Any]
) -> None:
    # The hub's own sweeper would record the ends, and delete their rows.
    chores.forbid()
    settings.MCPHUB_ELICITATION_TIMEOUT = 0.1
    for _ in range(2):
        peer.result("books_ask")
    eventually(lambda: not ParkedCall.objects.exclude(status=ParkedStatus.ENDED).exists())

    class RecorderDown:
        def record(self, _entry: object) -> None:
            raise RecorderUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(parked.recorder, "current", RecorderDown)
        assert not all_settled(ParkedSweeper())
    with monkeypatch.context() as patch:
        # The record is written, but the process dies before it deletes the row.
        patch.setattr(parked, "_delete", lambda _row: 1 / 0)
        assert not all_settled(ParkedSweeper())
    assert all_settled(ParkedSweeper())
    assert sorted(outcomes()) == sorted([Outcome.INPUT_REQUIRED, Outcome.TIMEOUT] * 2)


def test_an_outcome_that_nobody_fetches_is_recorded(
    peer: Peer, server: SdkServer, make_overdue: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    input_required = peer.result("books_ask")
    server.lose_patience()
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    make_overdue()
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.TOOL_ERROR]
    assert "not run again" in result_text(answer_questions(peer, input_required))


def test_an_outcome_that_was_fetched_is_recorded_by_the_call_that_fetched_it(
    peer: Peer, server: SdkServer, make_overdue: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    input_required = peer.result("books_ask")
    server.lose_patience()
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    assert answer_questions(peer, input_required)["isError"]
    make_overdue()
    assert all_settled(ParkedSweeper())
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.TOOL_ERROR]


@pytest.mark.parametrize("status", [ParkedStatus.ANSWERED, ParkedStatus.ENDED])
def test_a_call_whose_attender_left_no_trace_is_recorded_as_lost(
    peer: Peer, make_overdue: Callable[[], None], server: SdkServer, status: str, eventually: Callable[..., Any]
) -> None:
    peer.result("books_ask")
    ParkedCall.objects.update(status=status, attender=uuid4())
    make_overdue()
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]
    assert server.cancelled.wait(WAIT_SECONDS)


@pytest.mark.parametrize("bound", ["MAX_PARKED", "MAX_PARKED_OF_TENANT", "MAX_PARKED_OF_UPSTREAM", "MAX_PARKED_OF_KEY"])
def test_ended_calls_that_nobody_fetched_count_towards_each_bound(
    peer: Peer, server: SdkServer, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any], bound: str
) -> None:
    monkeypatch.setattr(parking, bound, 1)
    peer.result("books_ask")
    server.lose_patience()
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    assert "Too many calls wait for their clients" in result_text(peer.result("books_ask"))
    assert ParkedCall.objects.count() == 1


def test_a_large_outcome_is_not_kept_for_a_client_that_may_not_come(
    peer: Peer, server: SdkServer, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    monkeypatch.setattr(parking, "MAX_STORED_BYTES", 10)
    input_required = peer.result("books_ask")
    server.lose_patience()
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    assert "a result of more than 10 bytes" in result_text(answer_questions(peer, input_required))


def test_further_questions_that_are_too_large_end_the_call(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, server: SdkServer
) -> None:
    monkeypatch.setattr(parking, "MAX_STORED_BYTES", 10)
    assert "asked too much" in result_text(answer_questions(peer, peer.result("books_ask", {"times": 2}), times=2))
    assert server.cancelled.wait(WAIT_SECONDS)


def test_a_duplicate_of_an_answer_does_not_take_its_result(
    peer: Peer, answer_in_thread: Any, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    may_read = threading.Event()
    row_of = parking.row_of

    def delayed(id: Any) -> Any:
        row = row_of(id)
        if row is not None and row.status == ParkedStatus.ENDED:
            may_read.wait(WAIT_SECONDS)
        return row

    monkeypatch.setattr(parking, "row_of", delayed)
    input_required = peer.result("books_ask")
    first = answer_in_thread(input_required)
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    assert "not run again" in result_text(answer_questions(peer, input_required))
    may_read.set()
    assert result_text(first()) == "Ada"


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_response_that_the_database_does_not_confirm_is_an_error_that_says_so(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, server: SdkServer, is_stored: bool, eventually: Callable[..., Any]
) -> None:
    """What was stored is cancelled; what was not stored can be answered again."""
    accept = parking.accept

    def accept_and_fail(*args: Any) -> None:
        if is_stored:
            accept(*args)
        raise OperationalError("the connection broke")

    input_required = peer.result("books_ask", {"then": "wait"} if is_stored else {})
    with monkeypatch.context() as patch:
        patch.setattr(parking, "accept", accept_and_fail)
        result = answer_questions(peer, input_required, **({"then": "wait"} if is_stored else {}))
    assert "did not confirm the answer" in result_text(result)
    if is_stored:
        assert server.cancelled.wait(WAIT_SECONDS)
        eventually(lambda: all_settled(ParkedSweeper()))
        assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]
    else:
        assert result_text(answer_questions(peer, input_required)) == "Ada"


def test_a_call_that_cannot_be_kept_asks_nobody(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(parking, "insert", fail)
    assert "cannot be kept" in result_text(peer.result("books_ask"))


def test_a_call_whose_holder_let_go_is_recorded_once_if_its_client_does_not_come(
    peer: Peer, make_overdue: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    peer.result("books_ask")
    connections.current.stop()
    assert ParkedCall.objects.get().status == ParkedStatus.ENDED
    make_overdue()
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]


def test_a_call_whose_holder_let_go_is_recorded_once_if_its_client_comes_after_a_sweep(
    peer: Peer, make_overdue: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    input_required = peer.result("books_ask")
    connections.current.stop()
    for _ in range(3):
        ParkedSweeper().sweep()
    assert "was lost" in result_text(answer_questions(peer, input_required))
    make_overdue()
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    assert outcomes() == [Outcome.INPUT_REQUIRED, Outcome.LOST]


def test_waiting_calls_are_polled_in_one_query(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    """Rows are read whole only after a change."""
    for _ in range(3):
        peer.result("books_ask")
    batch_sizes: list[int] = []
    rows_read: list[object] = []
    states = parking.states
    monkeypatch.setattr(parking, "states", lambda ids: batch_sizes.append(len(ids)) or states(ids))
    eventually(lambda: len(batch_sizes) >= 2)
    row_of = parking.row_of
    monkeypatch.setattr(parking, "row_of", lambda id: rows_read.append(id) or row_of(id))
    eventually(lambda: len(batch_sizes) >= 4)
    assert set(batch_sizes) == {3}
    assert rows_read == []
