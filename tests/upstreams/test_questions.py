"""Elicitation, sampling and roots requests of upstreams reach clients of each era. The call is never repeated."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import QuerySet

from tests.conftest import chores
from tests.upstreams.servers import SdkServer, tool
from tests.wire.client import MODERN, Peer, RawClient, call_params, message_of
from tests.wire.task_tools import EXTENSION
from tools_app.calls import parked
from tools_app.calls.background import start_task
from tools_app.calls.invocation import End
from tools_app.calls.parked import ParkedSweeper
from tools_app.calls.sweeper import Sweeper, settle
from tools_app.models import Call, Outcome, ParkedCall, ParkedStatus, RunningCall, Tenant, Tool, Upstream
from tools_app.tenants import keys
from tools_app.upstreams import connections, parking, service, sessions

FORMS = {"elicitation": {}}
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
OLD = "2025-11-25"
MODEL = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"}
ANSWERS = {
    "sampling/createMessage": MODEL,
    "roots/list": {"roots": [{"uri": "file:///home"}]},
}


@pytest.fixture(params=("handshake", "modern"))
def upstream(request: pytest.FixtureRequest, sdk_server: Callable[..., SdkServer], add_upstream: Any) -> SdkServer:
    """An upstream of each era whose tools send requests to the client."""
    return add_asking_upstream(sdk_server, add_upstream, request.param)


def add_asking_upstream(sdk_server: Callable[..., SdkServer], add_upstream: Any, era: str) -> SdkServer:
    server = sdk_server()
    server.tools = [tool("ask"), tool("declared"), tool("several")]
    server.era = add_upstream(server, era=era).status.era
    assert server.era == era
    return server


def accept_name(text: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": text}}


def answer_for(request: dict[str, Any]) -> dict[str, Any]:
    """The response to a request of the tool `several`."""
    return ANSWERS.get(request["method"], {"action": "accept"})


def retry(
    peer: Peer, name: str, input_required: dict[str, Any], responses: dict[str, Any], **arguments: Any
) -> dict[str, Any]:
    params = {
        **call_params(name, arguments),
        "inputResponses": responses,
        "requestState": input_required["requestState"],
    }
    message: dict[str, Any] = message_of(peer.request("tools/call", params))
    return message


def call_and_answer(peer: Peer, name: str, answer: Callable[[dict[str, Any]], Any], **arguments: Any) -> dict[str, Any]:
    """Call a tool, answer its requests the way the client's era does, and return its result."""
    if peer.is_modern:
        result = peer.result(name, arguments)
        while result["resultType"] == "input_required":
            answers = {key: answer(request) for key, request in result["inputRequests"].items()}
            result = retry(peer, name, result, answers, **arguments)["result"]
        return result
    with peer.stream("tools/call", call_params(name, arguments)) as stream:
        while True:
            message = stream.next()
            if "result" in message:
                final: dict[str, Any] = message["result"]
                return final
            if "id" in message:
                assert peer.respond(message["id"], answer(message)).status_code == 202


def all_settled(sweeper: ParkedSweeper) -> bool:
    """Sweep once, and return whether no parked call is left."""
    sweeper.sweep()
    return not ParkedCall.objects.exists()


def result_text(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("version", [OLD, MODERN])
def test_a_form_is_asked_in_every_cell_of_eras(upstream: SdkServer, client: RawClient, version: str) -> None:
    """The tool elicits three times in succession."""
    names = iter(("Ada", "Bob", "Cid"))
    peer = client.peer(version, FORMS)
    result = call_and_answer(peer, "books_ask", lambda _request: accept_name(next(names)), times=3)
    assert result_text(result) == "Ada Bob Cid"
    # A modern upstream is called again with each answer, as its revision demands; an older one is called once.
    assert upstream.called.count("ask") == (4 if upstream.era == "modern" else 1)
    assert all_settled(ParkedSweeper())
    assert Call.objects.filter(tool_name="books_ask", outcome=Outcome.OK).count() == 1


@pytest.mark.parametrize("version", [OLD, MODERN])
def test_models_pages_and_roots_are_asked_in_every_cell_of_eras(
    upstream: SdkServer, client: RawClient, version: str
) -> None:
    result = call_and_answer(client.peer(version, ALL), "books_several", answer_for)
    assert result_text(result) == "Hi accept file:///home"


def test_the_upstream_gets_the_capabilities_of_the_client_and_no_others(upstream: SdkServer, client: RawClient) -> None:
    for version in (OLD, MODERN):
        for capabilities in ({}, FORMS, ALL):
            declared = json.loads(result_text(client.peer(version, capabilities).result("books_declared")))
            assert declared.keys() == capabilities.keys()
            assert set(declared.get("elicitation", ())) == {None: set(), 0: {"form"}}.get(
                None if not capabilities else len(capabilities["elicitation"]), {"form", "url"}
            )


# --- Calls that are parked: the client is modern and its upstream is not ---


@pytest.fixture
def handshake_upstream(sdk_server: Callable[..., SdkServer], add_upstream: Any) -> SdkServer:
    return add_asking_upstream(sdk_server, add_upstream, "handshake")


@pytest.fixture
def modern_peer(client: RawClient) -> Peer:
    return client.peer(MODERN, FORMS)


def test_progress_after_a_response_is_sent_on_the_stream_of_the_response(
    handshake_upstream: SdkServer, modern_peer: Peer
) -> None:
    input_required = modern_peer.result("books_ask", {"times": 1})
    params = {
        **call_params("books_ask", {"times": 1}, {"progressToken": "p"}),
        "requestState": input_required["requestState"],
    }
    params["inputResponses"] = dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    with modern_peer.stream("tools/call", params) as stream:
        progress, response = stream.read_to_end()
    assert (progress["params"]["progressToken"], progress["params"]["message"]) == ("p", "Answer 1")
    assert result_text(response["result"]) == "Ada"


def test_an_answer_counts_once_and_nothing_is_run_again(handshake_upstream: SdkServer, modern_peer: Peer) -> None:
    input_required = modern_peer.result("books_ask")
    answers = {name: {"action": "decline"} for name in input_required["inputRequests"]}
    assert result_text(retry(modern_peer, "books_ask", input_required, answers)["result"]) == "decline"
    again = retry(modern_peer, "books_ask", input_required, answers)["result"]
    assert again["isError"]
    assert "It is not run again" in result_text(again)
    assert handshake_upstream.called == ["ask"]


def test_an_answer_that_is_sent_again_does_not_disturb_the_call(
    handshake_upstream: SdkServer, modern_peer: Peer
) -> None:
    input_required = modern_peer.result("books_ask", {"times": 2})
    answers = dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    again = retry(modern_peer, "books_ask", input_required, answers, times=2)["result"]
    assert "It is not run again" in result_text(
        retry(modern_peer, "books_ask", input_required, answers, times=2)["result"]
    )
    second = dict.fromkeys(again["inputRequests"], accept_name("Bob"))
    assert result_text(retry(modern_peer, "books_ask", again, second, times=2)["result"]) == "Ada Bob"


def test_a_call_whose_answers_are_never_valid_is_cancelled(
    handshake_upstream: SdkServer, modern_peer: Peer, eventually: Callable[..., Any]
) -> None:
    input_required = modern_peer.result("books_ask")
    invalid_responses = dict.fromkeys(input_required["inputRequests"], accept_name("Ada") | {"content": {"name": 7}})
    for _ in range(2):
        input_required = retry(modern_peer, "books_ask", input_required, invalid_responses)["result"]
    assert "No answer to" in result_text(retry(modern_peer, "books_ask", input_required, invalid_responses)["result"])
    assert handshake_upstream.cancelled.wait(30)
    eventually(lambda: all_settled(ParkedSweeper()))


def test_an_answer_of_anybody_else_is_refused_and_the_call_still_waits(
    handshake_upstream: SdkServer,
    modern_peer: Peer,
    make_client: Callable[[str], RawClient],
    loopback_tenant: Tenant,
    other_key: str,
) -> None:
    input_required = modern_peer.result("books_ask")
    answers = dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    for stranger in (keys.issue(loopback_tenant, "colleague")[1], other_key):
        response = retry(make_client(stranger).peer(MODERN, FORMS), "books_ask", input_required, answers)
        assert response["error"]["code"] == -32602
    response_to_changed_arguments = retry(modern_peer, "books_ask", input_required, answers, times=2)
    assert response_to_changed_arguments["error"]["code"] == -32602
    assert ParkedCall.objects.get().status == ParkedStatus.ASKING
    assert result_text(retry(modern_peer, "books_ask", input_required, answers)["result"]) == "Ada"


def test_an_invalid_answer_is_asked_for_again_and_does_not_reach_the_upstream(
    handshake_upstream: SdkServer, modern_peer: Peer
) -> None:
    input_required = modern_peer.result("books_ask")
    (name,) = input_required["inputRequests"]
    again = retry(modern_peer, "books_ask", input_required, {name: {"action": "accept", "content": {"name": 7}}})[
        "result"
    ]
    assert "The last answer was invalid" in again["inputRequests"][name]["params"]["message"]
    assert result_text(retry(modern_peer, "books_ask", again, {name: accept_name("Ada")})["result"]) == "Ada"


def test_a_question_beyond_the_bound_is_refused_to_the_upstream(
    handshake_upstream: SdkServer, modern_peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED_OF_UPSTREAM", 1)
    first = modern_peer.result("books_ask")
    assert "Too many calls wait for their clients" in result_text(modern_peer.result("books_ask"))
    answers = dict.fromkeys(first["inputRequests"], accept_name("Ada"))
    assert result_text(retry(modern_peer, "books_ask", first, answers)["result"]) == "Ada"
    assert all_settled(ParkedSweeper())
    assert modern_peer.result("books_ask")["resultType"] == "input_required"


@pytest.mark.parametrize("version", [OLD, MODERN])
def test_a_form_that_asks_for_a_secret_is_refused_to_the_upstream(
    handshake_upstream: SdkServer, client: RawClient, version: str
) -> None:
    assert "secrets such as 'password'" in result_text(
        client.peer(version, FORMS).result("books_ask", {"field": "password"})
    )


def test_the_error_of_a_client_reaches_the_upstream(handshake_upstream: SdkServer, client: RawClient) -> None:
    peer = client.peer(OLD, FORMS)
    with peer.stream("tools/call", call_params("books_ask")) as stream:
        peer.respond(stream.next()["id"], error={"code": -1, "message": "Not now"})
        assert "Not now" in result_text(stream.read_to_end()[-1]["result"])


def test_an_upstream_that_goes_on_without_an_answer_withdraws_its_question(
    handshake_upstream: SdkServer, client: RawClient
) -> None:
    with client.peer(OLD, FORMS).stream("tools/call", call_params("books_ask")) as stream:
        input_required = stream.next()
        handshake_upstream.lose_patience()
        cancelled, response = stream.read_to_end()
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == input_required["id"]
    assert response["result"]["isError"] is True


def test_an_upstream_that_ends_a_parked_call_by_itself_gives_its_result_to_the_answer(
    handshake_upstream: SdkServer, modern_peer: Peer, eventually: Callable[..., Any]
) -> None:
    input_required = modern_peer.result("books_ask")
    handshake_upstream.lose_patience()
    eventually(lambda: ParkedCall.objects.get().status == ParkedStatus.ENDED)
    answers = dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    assert retry(modern_peer, "books_ask", input_required, answers)["result"]["isError"] is True
    assert all_settled(ParkedSweeper())


def test_a_client_that_goes_away_while_its_parked_call_runs_on_cancels_it(
    handshake_upstream: SdkServer, modern_peer: Peer, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    input_required = modern_peer.result("books_ask", {"then": "wait"})
    params = {**call_params("books_ask", {"then": "wait"}, {"progressToken": "p"})}
    params |= {"requestState": input_required["requestState"]}
    params["inputResponses"] = dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    with modern_peer.stream("tools/call", params) as stream:
        assert stream.next()["params"]["message"] == "Answer 1"
    assert handshake_upstream.cancelled.wait(30)
    eventually(lambda: all_settled(ParkedSweeper()))


def test_a_call_whose_client_never_answers_is_cancelled_and_recorded(
    handshake_upstream: SdkServer, modern_peer: Peer, settings: Any, eventually: Callable[..., Any]
) -> None:
    settings.MCPHUB_ELICITATION_TIMEOUT = 0.1
    input_required = modern_peer.result("books_ask")
    eventually(lambda: all_settled(ParkedSweeper()))
    assert handshake_upstream.cancelled.wait(30)
    asking_call, timeout = Call.objects.filter(tool_name="books_ask").order_by("started_at", "id")
    assert (asking_call.outcome, timeout.outcome) == (Outcome.INPUT_REQUIRED, Outcome.TIMEOUT)
    assert "did not answer" in timeout.cause
    result = retry(
        modern_peer, "books_ask", input_required, dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    )["result"]
    assert "no answer came in time" in result_text(result)


def test_a_call_whose_process_is_lost_is_lost_and_its_client_gets_an_error(
    handshake_upstream: SdkServer, modern_peer: Peer
) -> None:
    input_required = modern_peer.result("books_ask")
    connections.current.stop()
    result = retry(
        modern_peer, "books_ask", input_required, dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    )["result"]
    assert "was lost" in result_text(result)
    assert Call.objects.filter(outcome=Outcome.LOST).count() == 1
    assert handshake_upstream.called == ["ask"]


def test_a_parked_call_of_a_dead_process_is_recorded_as_lost(
    handshake_upstream: SdkServer, modern_peer: Peer, settings: Any, eventually: Callable[..., Any]
) -> None:
    settings.MCPHUB_PROCESS_TIMEOUT = 0.1
    modern_peer.result("books_ask")
    ParkedCall.objects.update(owner=uuid4())
    sweeper = ParkedSweeper()
    eventually(lambda: all_settled(sweeper))
    end = Call.objects.get(outcome=Outcome.LOST)
    assert "the process that held it died" in end.cause


def test_questions_on_stdio_reach_the_client_of_their_call(
    loopback_tenant: Tenant, settings: Any, modern_peer: Peer, client: RawClient
) -> None:
    """All messages of a process share one stream, so each process has one call that can ask."""
    run_program(loopback_tenant, settings, "program.py")
    pending = [modern_peer.result("ask") for _ in range(2)]
    for name, input_required in reversed(list(zip(("Ada", "Bob"), pending, strict=True))):
        responses = dict.fromkeys(input_required["inputRequests"], accept_name(name))
        assert retry(modern_peer, "ask", input_required, responses)["result"]["structuredContent"] == {"text": name}
    assert call_and_answer(client.peer(OLD, FORMS), "ask", lambda _request: accept_name("Cid"))[
        "structuredContent"
    ] == {"text": "Cid"}


def run_program(loopback_tenant: Tenant, settings: Any, file: str) -> None:
    """Add a program as an upstream on stdio."""
    command = [sys.executable, str(Path(__file__).with_name(file))]
    settings.MCPHUB_UPSTREAM_COMMANDS = [" ".join(command)]
    settings.MCPHUB_UPSTREAM_PATHS = [str(Path(__file__).parent)]
    upstream = Upstream.objects.create(tenant=loopback_tenant, name="program", transport="stdio", command=command)
    service.accept(service.discover(upstream).of_kind("tool"))


def test_a_late_question_about_a_call_that_timed_out_reaches_no_other_client(
    loopback_tenant: Tenant, settings: Any, modern_peer: Peer, make_client: Callable[[str], RawClient]
) -> None:
    run_program(loopback_tenant, settings, "late.py")
    Tool.objects.update(timeout_seconds=0.5)
    assert "did not finish" in result_text(modern_peer.result("slow"))
    Tool.objects.update(timeout_seconds=20)
    colleague = make_client(keys.issue(loopback_tenant, "colleague")[1]).peer(MODERN, FORMS)
    assert colleague.result("slow", {"answer": True})["content"] == []


def test_calls_that_wait_for_clients_leave_a_session_for_others(
    loopback_tenant: Tenant, settings: Any, modern_peer: Peer, make_client: Callable[[str], RawClient]
) -> None:
    """A key can hold half of the sessions, and all keys all but one."""
    run_program(loopback_tenant, settings, "program.py")
    colleague = make_client(keys.issue(loopback_tenant, "colleague")[1])
    colleague_peer = colleague.peer(MODERN, FORMS)
    first = modern_peer.result("ask")
    assert modern_peer.result("ask")["resultType"] == "input_required"
    assert "Too many calls of this upstream" in str(modern_peer.result("ask"))
    assert colleague_peer.result("ask")["resultType"] == "input_required"
    assert "Too many calls of this upstream" in str(colleague_peer.result("ask"))
    result = colleague.peer(MODERN, {}).result("read", {"path": "/none"})
    assert result["structuredContent"] == {"text": "FileNotFoundError"}
    answers = dict.fromkeys(first["inputRequests"], accept_name("Ada"))
    assert retry(modern_peer, "ask", first, answers)["result"]["structuredContent"] == {"text": "Ada"}


def test_a_call_that_gets_no_session_in_time_says_so(
    loopback_tenant: Tenant, settings: Any, modern_peer: Peer, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(sessions, "MAX_DUPLEX_SESSIONS", 2)
    run_program(loopback_tenant, settings, "program.py")
    assert modern_peer.result("ask")["resultType"] == "input_required"
    with client.peer(OLD, FORMS).stream("tools/call", call_params("ask")) as stream:
        assert stream.next()["method"] == "elicitation/create"
        assert "is busy: all 2 sessions" in result_text(modern_peer.result("read", {"path": "/"}))


def test_answers_go_to_no_other_definition_than_the_one_that_asked(
    upstream: SdkServer, client: RawClient, eventually: Callable[..., Any]
) -> None:
    """An admin changes the upstream's URL before the client answers."""
    peer = client.peer(MODERN, FORMS)
    input_required = peer.result("books_ask")
    Upstream.objects.update(url=f"{Upstream.objects.get().url}?other")
    answers = dict.fromkeys(input_required["inputRequests"], accept_name("Ada"))
    text = eventually(lambda: result_text(retry(peer, "books_ask", input_required, answers)["result"]))
    assert "has changed since its upstream asked" in text
    assert upstream.called == ["ask"]


def test_a_task_ends_its_parked_call_and_the_end_is_recorded_once(
    handshake_upstream: SdkServer, modern_peer: Peer, eventually: Callable[..., Any]
) -> None:
    """The rows are in the state in which a task waits for its client."""
    modern_peer.result("books_ask")
    # As if the call had been a task, which was cancelled while it waited.
    Call.objects.filter(tool_name="books_ask").update(outcome=Outcome.CANCELLED)
    sweeper = ParkedSweeper()
    eventually(lambda: sweeper.sweep() or not ParkedCall.objects.exists())
    assert handshake_upstream.cancelled.wait(30)
    assert list(Call.objects.filter(tool_name="books_ask").values_list("outcome", flat=True)) == ["cancelled"]


@pytest.fixture
def task(
    handshake_upstream: SdkServer, client: RawClient, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> Any:
    """A task of the hub that awaits input for a call of an upstream: `(peer, task id)`."""
    monkeypatch.setattr(start_task, "TASK_AFTER_SECONDS", 0.0)
    Tool.objects.filter(name="books_ask").update(task="optional")
    peer = client.peer(MODERN, {**FORMS, **EXTENSION})
    task_id = peer.result("books_ask")["taskId"]
    eventually(lambda: RunningCall.objects.get().is_awaiting_input)
    return peer, task_id


def test_a_task_that_is_cancelled_takes_its_parked_call_with_it(
    handshake_upstream: SdkServer, task: tuple[Peer, str], eventually: Callable[..., Any]
) -> None:
    peer, task_id = task
    peer.request("tasks/cancel", {"taskId": task_id})
    parked, calls = ParkedSweeper(), Sweeper()
    outcomes = Call.objects.filter(tool_name="books_ask").values_list("outcome", flat=True)
    eventually(lambda: calls.sweep() or parked.sweep() or (outcomes.exists() and not ParkedCall.objects.exists()))
    assert handshake_upstream.cancelled.wait(30)
    assert list(outcomes.all()) == ["cancelled"]


def test_a_task_that_ends_elsewhere_at_this_moment_has_one_record(
    handshake_upstream: SdkServer, task: tuple[Peer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chores.forbid()
    row, exists = ParkedCall.objects.get(), QuerySet.exists

    def exists_before_the_end(rows: QuerySet[Any]) -> bool:
        """Look for the record, which another process writes just after."""
        found = exists(rows)
        monkeypatch.undo()
        assert settle(RunningCall.objects.get(), End(Outcome.TIMEOUT, is_error=True))
        return found

    monkeypatch.setattr(QuerySet, "exists", exists_before_the_end)
    assert parked._is_recorded_by_call(row, End(Outcome.LOST, is_error=True))
    assert Call.objects.get(tool_name="books_ask").outcome == Outcome.TIMEOUT


def test_a_task_ends_when_its_upstream_is_no_longer_held(
    handshake_upstream: SdkServer, task: tuple[Peer, str], settings: Any, eventually: Callable[..., Any]
) -> None:
    """It does not wait for a response that no process can forward, and its end is recorded once."""
    ParkedCall.objects.update(owner=uuid4())
    settings.MCPHUB_PROCESS_TIMEOUT = 0.1
    sweeper = ParkedSweeper()
    eventually(lambda: sweeper.sweep() or not ParkedCall.objects.exists())
    (end,) = Call.objects.filter(tool_name="books_ask")
    assert (end.pk, end.outcome) == (UUID(task[1].partition(".")[0]), Outcome.LOST)
    assert not RunningCall.objects.exists()
