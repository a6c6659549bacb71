"""Requests to the client in the handshake era: sent on the call's own stream, answered by a POST."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from tests.wire.client import (
    EACH_HANDSHAKE,
    HANDSHAKES,
    Peer,
    RawClient,
    Stream,
    call_params,
    error_of,
    message_of,
    text_of,
)
from tools_app.calls import inputs
from tools_app.catalog.tool_api import context as contexts
from tools_app.models import ApiKey, Call, CallEvent, CallInput, RunningCall, Session, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import Elicit, ElicitUrl, ListRoots, Refused, Sample, ToolContext, prompt, resource, tool, user

NEWEST = HANDSHAKES[-1]
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}
FUNCTION_KINDS = ("async", "sync", "worker")
PAGE = "https://example.org/sign-in"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TITLED = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2, "default": "Ada"},
        "email": {"type": "string", "format": "email"},
        "age": {"type": "integer", "minimum": 0, "default": 36},
        "score": {"type": "number", "default": 0.5},
        "member": {"type": "boolean", "default": True},
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "size": {"type": "string", "oneOf": TITLED},
        "legacy": {"type": "string", "enum": ["a", "b"], "enumNames": ["One", "Two"]},
        "days": {"type": "array", "items": {"type": "string", "enum": ["mon", "tue"]}, "minItems": 1},
        "sizes": {"type": "array", "items": {"anyOf": TITLED}, "default": ["s"]},
    },
    "required": ["name", "age"],
}
FILLED = {
    "name": "Grace",
    "email": "grace@example.org",
    "age": 85,
    "score": 1.5,
    "member": False,
    "colour": "blue",
    "size": "l",
    "legacy": "b",
    "days": ["mon", "tue"],
    "sizes": ["s", "l"],
}
REPLY = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "stopReason": "endTurn"}
ROOTS = {"roots": [{"uri": "file:///srv/one", "name": "One"}]}
PICTURE = {"type": "image", "data": "AA==", "mimeType": "image/png"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "u1", "name": "look", "input": {}}]}
RESULT = {"type": "tool_result", "toolUseId": "u1", "content": [{"type": "text", "text": "seen"}]}


async def one_form(context: ToolContext) -> Any:
    elicited = await context.elicit("Who are you?", FORM)
    return [elicited.action, elicited.content]


async def one_page(context: ToolContext) -> Any:
    return (await context.elicit_url("Please sign in", PAGE)).action


async def one_model(context: ToolContext) -> Any:
    return await context.sample([user("The capital of France?")], 50, temperature=0.5)


async def model_with_tools(context: ToolContext) -> Any:
    return await context.sample([user("Look")], 50, tools=[{"name": "look", "inputSchema": {"type": "object"}}])


async def model_with_context(context: ToolContext) -> Any:
    return await context.sample([user("Look")], 50, includeContext="thisServer")


async def model_with_secret(context: ToolContext) -> Any:
    return await context.sample([user("Look")], 50, metadata={"api_key": "hunter2"})


async def the_roots(context: ToolContext) -> Any:
    return await context.list_roots()


async def two_at_once(context: ToolContext) -> Any:
    answers = await context.ask({"who": Elicit("Who?", NAME), "where": ListRoots()})
    return [answers["who"].content, answers["where"]]


async def same_key_twice(context: ToolContext) -> Any:
    first = await context.elicit("First", NAME, key="who")
    second = await context.elicit("Second", NAME, key="who")
    return [first.content["name"], second.content["name"]]


async def side_by_side(context: ToolContext) -> Any:
    return await asyncio.gather(context.list_roots(), context.list_roots())


async def form_for_a_secret(context: ToolContext) -> Any:
    return (await context.elicit("Your password?", {"type": "object", "properties": {"password": {}}})).action


async def page_without_tls(context: ToolContext) -> Any:
    return (await context.elicit_url("Please sign in", "http://example.org/")).action


async def a_result_out_of_place(context: ToolContext) -> Any:
    return await context.sample([user("x"), {"role": "user", "content": [RESULT]}], 50)


async def three_in_a_row(context: ToolContext) -> Any:
    return [await context.list_roots() for _ in range(3)]


async def who_calls(context: ToolContext) -> Any:
    elicited = await context.elicit("Who are you?", NAME)
    return [elicited.content["name"], context.caller.tenant_slug, context.caller.client_name]


async def form_then_hang(context: ToolContext) -> Any:
    await context.list_roots()
    await asyncio.Event().wait()


Offer = Callable[..., Any]
AskFunction = Callable[[ToolContext], Any]


@pytest.fixture(autouse=True)
def frequent_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll for responses more often than a hub does."""
    monkeypatch.setattr(inputs, "POLL_SECONDS", 0.02)


@pytest.fixture
def offer_asking(registries: None, offer: Offer) -> Callable[..., None]:
    """Offer a tool "ask" that runs a function of one of FUNCTION_KINDS and returns what it got as JSON."""

    def add(
        ask_client: AskFunction, function_kind: str = "async", *, left: Event | None = None, **options: Any
    ) -> None:
        async def ask(context: ToolContext) -> str:
            return json.dumps(await ask_client(context))

        def ask_and_wait(context: ToolContext) -> str:
            try:
                return json.dumps(context.wait_for(ask_client(context)))
            finally:
                if left is not None:
                    left.set()

        function = ask if function_kind == "async" else ask_and_wait
        tool(name="ask", background=function_kind == "worker", **options)(function)
        offer("ask")

    return add


@pytest.fixture
def handshake_peer(client: RawClient) -> Peer:
    """A client of the newest handshake revision that declares all capabilities."""
    return client.handshake(NEWEST, ALL)


@contextmanager
def asking_call(peer: Peer, id: Any = 7) -> Iterator[tuple[Stream, dict[str, Any]]]:
    """A call of "ask": its stream, and the first request on it."""
    with peer.stream("tools/call", call_params("ask"), id=id) as stream:
        yield stream, stream.next()


def final_value(stream: Stream) -> Any:
    """What the function got from the client, from the result, which is the only message left on the stream."""
    (response,) = stream.read_to_end()
    assert response["result"]["isError"] is False, response
    return json.loads(response["result"]["content"][0]["text"])


def failure(stream: Stream) -> str:
    """The text of the tool error that ends the stream."""
    *_, response = stream.read_to_end()
    assert response["result"]["isError"] is True
    return response["result"]["content"][0]["text"]


def accept(peer: Peer, question: dict[str, Any], name: str = "Ada") -> None:
    assert peer.respond(question["id"], {"action": "accept", "content": {"name": name}}).status_code == 202


# --- A question and its answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_a_form_goes_out_on_the_calls_stream_and_its_answer_reaches_the_function(
    offer_asking: Callable[..., None], handshake_peer: Peer, eventually: Offer, function_kind: str
) -> None:
    offer_asking(one_form, function_kind)
    with asking_call(handshake_peer) as (stream, question):
        assert stream.response.headers["content-type"] == "text/event-stream"
        assert isinstance(question.pop("id"), str)
        params = {"message": "Who are you?", "requestedSchema": FORM}
        assert question == {"jsonrpc": "2.0", "method": "elicitation/create", "params": params}
        call_id = CallEvent.objects.get().call_id
        response = handshake_peer.respond(f"{call_id}:elicitation-1", {"action": "accept", "content": FILLED})
        assert (response.status_code, response.content) == (202, b"")
        assert final_value(stream) == ["accept", FILLED]
    event = CallEvent.objects.get()
    assert (event.kind, event.sequence) == ("request", 1)
    assert json.loads(event.data) == {"name": "elicitation-1", "method": "elicitation/create", "params": params}
    assert Call.objects.get().outcome == "ok"
    eventually(lambda: not CallInput.objects.exists())
    assert not RunningCall.objects.exists()


@pytest.mark.parametrize("version", EACH_HANDSHAKE)
@pytest.mark.parametrize(
    ("ask_client", "method", "params", "answer", "expected"),
    [
        (
            one_model,
            "sampling/createMessage",
            {"messages": [user("The capital of France?")], "maxTokens": 50, "temperature": 0.5},
            REPLY,
            REPLY,
        ),
        (the_roots, "roots/list", {}, ROOTS, ROOTS["roots"]),
    ],
)
def test_models_and_roots_are_asked_for_in_each_revision(
    offer_asking: Callable[..., None],
    client: RawClient,
    version: str,
    ask_client: AskFunction,
    method: str,
    params: dict[str, Any],
    answer: dict[str, Any],
    expected: Any,
) -> None:
    offer_asking(ask_client)
    peer = client.handshake(version, ALL)
    with asking_call(peer) as (stream, question):
        assert (question["method"], question["params"]) == (method, params)
        assert peer.respond(question["id"], answer).status_code == 202
        assert final_value(stream) == expected


@pytest.mark.shows("elicitation.url-request")
def test_a_page_has_its_mode_its_message_its_address_and_an_id_of_its_own(
    offer_asking: Callable[..., None], handshake_peer: Peer
) -> None:
    offer_asking(one_page)
    ids = set()
    for _ in range(2):
        with asking_call(handshake_peer) as (stream, question):
            ids.add(question["params"].pop("elicitationId"))
            assert question["method"] == "elicitation/create"
            assert question["params"] == {"mode": "url", "message": "Please sign in", "url": PAGE}
            handshake_peer.respond(question["id"], {"action": "accept"})
            assert final_value(stream) == "accept"
    assert len(ids) == 2
    assert all(isinstance(id, str) and id for id in ids)


@pytest.mark.shows("elicitation.declined")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_elicitation_is_a_response(
    offer_asking: Callable[..., None], handshake_peer: Peer, action: str
) -> None:
    offer_asking(one_form)
    with asking_call(handshake_peer) as (stream, question):
        handshake_peer.respond(question["id"], {"action": action})
        assert final_value(stream) == [action, {}]


@pytest.mark.shows("elicitation.declined")
@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_a_client_that_answers_with_an_error_fails_the_call_in_its_words(
    offer_asking: Callable[..., None], handshake_peer: Peer, function_kind: str
) -> None:
    offer_asking(one_model, function_kind)
    with asking_call(handshake_peer) as (stream, question):
        handshake_peer.respond(question["id"], error={"code": -1, "message": "User rejected sampling request"})
        (last,) = stream.read_to_end()
    assert last["result"]["isError"] is True
    assert "User rejected sampling request" in last["result"]["content"][0]["text"]


@pytest.mark.shows("elicitation.content", "sampling.content")
@pytest.mark.parametrize(
    ("ask_client", "answer", "reason"),
    [
        (one_form, {"action": "accept", "content": {"name": "Ada"}}, "age"),
        (one_form, {"action": "accept", "content": {"name": "Ada", "age": -1}}, "age"),
        (one_form, {"action": "accept", "content": {"name": "Ada", "age": 1, "days": ["sun"]}}, "days"),
        (one_form, {"action": "accept"}, "name"),
        (one_form, {"action": "accept", "content": ["Ada", 1]}, "object"),
        (one_form, {"action": "perhaps"}, "action"),
        (one_form, {}, "action"),
        (one_page, {"content": {}}, "action"),
        (one_model, {**REPLY, "role": "system"}, "role"),
        (one_model, {**REPLY, "content": 5}, "content"),
        (one_model, {**REPLY, "content": []}, "content"),
        (one_model, {**REPLY, "content": {"text": "Paris"}}, "type"),
        (one_model, {"content": REPLY["content"]}, "role"),
        (the_roots, {}, "roots"),
        (the_roots, {"roots": [{"name": "no address"}]}, "uri"),
        (the_roots, ["file:///srv"], "did not answer"),
        (the_roots, "file:///srv", "did not answer"),
    ],
)
def test_an_answer_that_does_not_fit_the_question_fails_the_call_and_says_why(
    offer_asking: Callable[..., None], handshake_peer: Peer, ask_client: AskFunction, answer: Any, reason: str
) -> None:
    offer_asking(ask_client)
    with asking_call(handshake_peer) as (stream, question):
        assert handshake_peer.respond(question["id"], answer).status_code == 202
        assert reason in failure(stream)


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_several_questions_go_out_together_and_are_answered_in_any_order(
    offer_asking: Callable[..., None], handshake_peer: Peer, function_kind: str
) -> None:
    offer_asking(two_at_once, function_kind)
    with asking_call(handshake_peer) as (stream, who):
        where = stream.next()
        assert (who["method"], where["method"]) == ("elicitation/create", "roots/list")
        handshake_peer.respond(where["id"], ROOTS)
        accept(handshake_peer, who)
        assert final_value(stream) == [{"name": "Ada"}, ROOTS["roots"]]


@pytest.mark.usefixtures("registries")
def test_elicitations_of_resources_and_prompts_are_sent_on_their_streams(
    offer_resources: Offer, offer_prompts: Offer, handshake_peer: Peer
) -> None:
    @resource("docs://who")
    async def who(context: ToolContext) -> str:
        return str((await context.elicit("Who?", NAME)).content["name"])

    @prompt
    def greet(context: ToolContext) -> str:
        return str(context.wait_for(context.elicit("Who?", NAME)).content["name"])

    offer_resources("docs://who")
    offer_prompts("greet")
    for method, params in (("resources/read", {"uri": "docs://who"}), ("prompts/get", {"name": "greet"})):
        with handshake_peer.stream(method, params) as stream:
            accept(handshake_peer, stream.next(), f"Ada of {method}")
            (last,) = stream.read_to_end()
            assert f"Ada of {method}" in json.dumps(last["result"])


# --- Whose answer counts -------------------------------------------------------------------------------------------


@pytest.mark.shows("elicitation.bound", "elicitation.state")
def test_responses_of_other_sessions_and_with_other_ids_change_nothing(
    offer_asking: Callable[..., None],
    handshake_peer: Peer,
    client: RawClient,
    tenant: Tenant,
    make_client: Callable[[str], RawClient],
    other_key: str,
) -> None:
    offer_asking(one_form)
    acceptance = {"action": "accept", "content": {"name": "Mallory", "age": 1}}
    colleague = make_client(keys.issue(tenant, "colleague")[1])
    others = [client.handshake(NEWEST, ALL), colleague.handshake(NEWEST, ALL), make_client(other_key).handshake()]
    with asking_call(handshake_peer) as (stream, question):
        assert [other.respond(question["id"], acceptance).status_code for other in others] == [202] * 3
        call_id = question["id"].partition(":")[0]
        for id in ("nobody", 1, call_id, f"{call_id}:elicitation-2", f"{call_id}:", ":elicitation-1"):
            assert handshake_peer.respond(id, acceptance).status_code == 202
        assert Peer(colleague, NEWEST, handshake_peer.session_id).respond(question["id"], acceptance).status_code == 404
        assert not CallInput.objects.exists()
        handshake_peer.respond(question["id"], {"action": "decline"})
        assert final_value(stream) == ["decline", {}]


@pytest.mark.shows("base.own-request-ids")
@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_an_answer_counts_once_and_each_question_has_an_id_of_its_own(
    offer_asking: Callable[..., None], handshake_peer: Peer, eventually: Offer, function_kind: str
) -> None:
    offer_asking(same_key_twice, function_kind)
    ids = []
    for call in range(2):
        with asking_call(handshake_peer, id=call) as (stream, first):
            accept(handshake_peer, first, "one")
            second = stream.next()
            accept(handshake_peer, first, "again")
            accept(handshake_peer, second, "two")
            accept(handshake_peer, second, "again")
            assert final_value(stream) == ["one", "two"]
            ids += [first["id"], second["id"]]
    assert len(set(ids)) == 4
    eventually(lambda: not CallInput.objects.exists())


@pytest.mark.shows("elicitation.claimed-identity")
def test_the_key_identifies_the_caller_whatever_the_client_claims(
    offer_asking: Callable[..., None], client: RawClient, tenant: Tenant, other_tenant: Tenant
) -> None:
    offer_asking(who_calls)
    info = {"name": other_tenant.slug, "version": "1"}
    response = client.initialize(capabilities=ALL, clientInfo=info)
    peer = Peer(client, NEWEST, response.headers["Mcp-Session-Id"], ALL)
    with asking_call(peer) as (stream, question):
        accept(peer, question, "the admin of rival")
        assert final_value(stream) == ["the admin of rival", "acme", "rival"]
    call = Call.objects.get()
    assert (call.tenant, call.api_key) == (tenant, ApiKey.objects.get())


@pytest.mark.shows("elicitation.own-authorization")
def test_without_a_key_calls_and_responses_are_rejected(
    offer_asking: Callable[..., None], handshake_peer: Peer, make_client: Callable[[str | None], RawClient]
) -> None:
    offer_asking(one_page)
    anonymous = Peer(make_client(None), NEWEST, handshake_peer.session_id)
    assert anonymous.call("ask").status_code == 401
    with asking_call(handshake_peer) as (stream, question):
        assert anonymous.respond(question["id"], {"action": "accept"}).status_code == 401
        handshake_peer.respond(question["id"], {"action": "accept"})
        assert final_value(stream) == "accept"
    assert anonymous.call("ask").status_code == 401


# --- Time, silence and cancellation --------------------------------------------------------------------------------


@pytest.mark.shows("cancellation.late-answer", "cancellation.own-requests", "lifecycle.question-timeouts")
@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_a_question_without_an_answer_is_withdrawn_and_an_answer_that_comes_late_changes_nothing(
    offer_asking: Callable[..., None], handshake_peer: Peer, settings: Any, function_kind: str
) -> None:
    async def form_then_roots(context: ToolContext) -> Any:
        try:
            return (await context.elicit("Who?", NAME)).action
        except Refused as problem:
            settings.MCPHUB_ELICITATION_TIMEOUT = 600.0
            return [str(problem), await context.list_roots()]

    settings.MCPHUB_ELICITATION_TIMEOUT = 0.1
    offer_asking(form_then_roots, function_kind)
    with asking_call(handshake_peer) as (stream, form):
        cancelled = stream.next()
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == form["id"]
        accept(handshake_peer, form)
        assert not CallInput.objects.exists()
        handshake_peer.respond(stream.next()["id"], ROOTS)
        assert final_value(stream) == ["The client did not answer within 0.1 seconds.", ROOTS["roots"]]
    kinds = CallEvent.objects.order_by("sequence").values_list("kind", flat=True)
    assert list(kinds) == ["request", "withdrawal", "request"]


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
@pytest.mark.parametrize("ask_client", [pytest.param(same_key_twice, marks=pytest.mark.slow), side_by_side])
def test_waiting_for_an_answer_is_not_the_functions_time(
    offer_asking: Callable[..., None],
    handshake_peer: Peer,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Offer,
    function_kind: str,
    ask_client: AskFunction,
) -> None:
    # Each answer is found by a poll after the function's time.
    offer_asking(ask_client, function_kind, timeout=1.0, read_only=True)
    monkeypatch.setattr(inputs, "POLL_SECONDS", 1.1)
    answer = {**ROOTS, "action": "accept", "content": {"name": "Ada"}}
    with asking_call(handshake_peer) as (stream, first):
        eventually(lambda: RunningCall.objects.filter(status="waiting").exists())
        handshake_peer.respond(first["id"], answer)
        second = stream.next()
        eventually(lambda: CallInput.objects.filter(sealed=inputs.ALREADY_READ).exists())
        eventually(lambda: RunningCall.objects.filter(status="waiting").exists())
        handshake_peer.respond(second["id"], answer)
        assert final_value(stream) in (["Ada", "Ada"], [ROOTS["roots"], ROOTS["roots"]])


def test_after_its_answer_the_functions_time_goes_on(offer_asking: Callable[..., None], handshake_peer: Peer) -> None:
    offer_asking(form_then_hang, timeout=1.0)
    with asking_call(handshake_peer) as (stream, question):
        handshake_peer.respond(question["id"], ROOTS)
        assert "did not finish within 1 seconds" in failure(stream)
    assert Call.objects.get().outcome == "timeout"


@pytest.mark.shows("cancellation.reason-logged", "cancellation.own-requests")
@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_a_call_that_is_cancelled_while_it_waits_stops_and_takes_its_question_back(
    offer_asking: Callable[..., None], handshake_peer: Peer, eventually: Offer, function_kind: str
) -> None:
    left = Event()
    offer_asking(one_form, function_kind, left=left)
    with asking_call(handshake_peer) as (stream, question):
        eventually(lambda: RunningCall.objects.filter(status="waiting").exists())
        handshake_peer.notify("notifications/cancelled", {"requestId": 7, "reason": "no longer needed"})
        messages = stream.read_to_end()
    assert [message["method"] for message in messages] == ["notifications/cancelled"]
    assert messages[0]["params"]["requestId"] == question["id"]
    assert function_kind == "async" or left.wait(2.0)
    call = eventually(Call.objects.first)
    assert (call.outcome, call.cause) == ("cancelled", "cancelled by its client: no longer needed")
    assert handshake_peer.respond(question["id"], {"action": "decline"}).status_code == 202
    eventually(lambda: not CallInput.objects.exists())
    assert not RunningCall.objects.exists()


# --- Capabilities ---------------------------------------------------------------------------------------------------


@pytest.mark.shows(
    "elicitation.modes",
    "lifecycle.keeps-capabilities",
    "lifecycle.must-keep-capabilities",
    "roots.capability",
    "sampling.tools-capability",
)
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
@pytest.mark.parametrize(
    ("capabilities", "ask_client", "missing"),
    [
        ({}, one_form, "elicitation"),
        ({"sampling": {}, "roots": {}}, one_form, "elicitation"),
        ({"elicitation": {"url": {}}}, one_form, "elicitation"),
        ({"elicitation": {}}, one_page, "elicitation.url"),
        ({"elicitation": {"form": {}}}, one_page, "elicitation.url"),
        ({"elicitation": {}}, one_model, "sampling"),
        ({"sampling": {}}, model_with_tools, "sampling.tools"),
        ({"sampling": None}, one_model, "sampling"),
        ({"elicitation": {}, "sampling": {}}, the_roots, "roots"),
    ],
)
def test_a_client_is_not_asked_for_what_it_did_not_declare(
    offer_asking: Callable[..., None],
    client: RawClient,
    version: str,
    capabilities: dict[str, Any],
    ask_client: AskFunction,
    missing: str,
) -> None:
    offer_asking(ask_client)
    response = client.handshake(version, capabilities).call("ask")
    assert message_of(response)["result"]["isError"] is True
    assert text_of(response) == f"This tool requires a client that supports {missing}."
    assert not CallEvent.objects.exists()


@pytest.mark.shows("elicitation.modes")
@pytest.mark.parametrize("elicitation", [{}, {"form": {}}, {"form": {}, "url": {}}])
def test_a_client_that_names_no_mode_has_forms(
    offer_asking: Callable[..., None], client: RawClient, elicitation: dict[str, Any]
) -> None:
    offer_asking(one_form)
    peer = client.handshake(NEWEST, {"elicitation": elicitation})
    with asking_call(peer) as (stream, question):
        peer.respond(question["id"], {"action": "decline"})
        assert final_value(stream) == ["decline", {}]


@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_a_client_that_accepts_only_json_is_sent_no_requests(
    offer_asking: Callable[..., None], handshake_peer: Peer, function_kind: str
) -> None:
    offer_asking(one_form, function_kind)
    response = handshake_peer.call("ask", headers={"Accept": "application/json"})
    assert response.headers["content-type"] == "application/json"
    assert text_of(response) == "This tool requires a client that supports elicitation."
    assert not CallEvent.objects.exists()


# --- Rejected requests ----------------------------------------------------------------------------------------------


@pytest.mark.shows(
    "elicitation.form-sensitive",
    "elicitation.https",
    "elicitation.sensitive",
    "sampling.results-complete",
)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("ask_client", [form_for_a_secret, page_without_tls, a_result_out_of_place])
def test_forbidden_requests_to_the_client_are_not_sent(
    offer_asking: Callable[..., None], client: RawClient, version: str, ask_client: AskFunction
) -> None:
    offer_asking(ask_client)
    result = message_of(client.peer(version, ALL).call("ask"))["result"]
    assert result["isError"] is True
    assert "inputRequests" not in result
    assert not CallEvent.objects.exists()
    assert "ValueError" in Call.objects.get().cause


@pytest.mark.shows("elicitation.form-sensitive")
@pytest.mark.parametrize("name", ["password", "apiKey", "access_token", "client-secret", "db_password_old", "PIN"])
def test_a_form_has_no_field_for_a_secret(name: str) -> None:
    with pytest.raises(ValueError, match="cannot ask for secrets"):
        Elicit("Please", {"type": "object", "properties": {"name": {"type": "string"}, name: {"type": "string"}}})


@pytest.mark.shows("elicitation.form-links")
@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("See https://example.org/help", {"type": "string"}),
        ("Your name?", {"type": "string", "title": "As at http://example.org"}),
        ("Your name?", {"type": "string", "description": "HTTPS://example.org tells more"}),
    ],
)
def test_the_author_of_a_form_with_an_address_is_warned(
    caplog: pytest.LogCaptureFixture, message: str, field: dict[str, Any]
) -> None:
    with caplog.at_level(logging.WARNING, "tools_app.catalog.tool_api.elicitation"):
        Elicit("Your name?", NAME)
        assert not caplog.records
        Elicit(message, {"type": "object", "properties": {"name": field}})
    assert "Use a URL elicitation instead" in caplog.text


@pytest.mark.shows("elicitation.https", "elicitation.url-sensitive")
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://example.org/", "https"),
        ("ftp://example.org/", "https"),
        ("javascript:alert(1)", "http or https URL"),
        ("example.org", "http or https URL"),
        ("https://", "http or https URL"),
        ("https://example.org/a b", "http or https URL"),
        ("https://example.org/\n", "http or https URL"),
        ("https://example.org:port/", "http or https URL"),
        ("https://[::1", "http or https URL"),
        ("https://ada:pw@example.org/", "secret"),
        ("https://ada@example.org/", "secret"),
        ("https://example.org/?step=1&access_token=abc", "secret"),
        ("https://example.org/?api_key=", "secret"),
    ],
)
def test_a_person_is_sent_to_no_address_that_is_unsafe_or_opens_something_by_itself(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ElicitUrl("Please", url)


@pytest.mark.parametrize(
    "url", ["https://example.org/sign-in?state=1#top", "http://127.0.0.1:8000/", "http://[::1]/x", "http://localhost/"]
)
def test_a_person_may_be_sent_to_a_safe_page_or_to_one_of_this_machine(url: str) -> None:
    assert ElicitUrl("Please", url).params()["url"] == url


@pytest.mark.shows("elicitation.https")
def test_in_debug_mode_any_page_will_do(settings: Any) -> None:
    settings.DEBUG = True
    assert ElicitUrl("Please", "http://example.org/").url == "http://example.org/"


@pytest.mark.shows("sampling.results-alone", "sampling.results-complete")
@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([USE, {"role": "user", "content": [RESULT, {"type": "text", "text": "and?"}]}], "only tool results"),
        ([USE, {"role": "user", "content": [PICTURE, RESULT]}], "only tool results"),
        ([USE], "followed"),
        ([USE, user("never mind")], "followed"),
        ([USE, {"role": "user", "content": [{**RESULT, "toolUseId": "u2"}]}], "followed"),
        ([USE, {"role": "user", "content": [RESULT, RESULT]}], "followed"),
        ([USE, user("wait"), {"role": "user", "content": [RESULT]}], "followed"),
        ([user("x"), {"role": "user", "content": RESULT}], "followed"),
    ],
)
def test_uses_and_results_of_tools_belong_together(messages: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Sample(messages, 50)


def test_results_of_tools_follow_their_use_in_sampling_messages() -> None:
    messages = [user("x"), USE, {"role": "user", "content": [RESULT]}, user("and?")]
    assert Sample(messages, 50).params()["messages"] == messages


@pytest.mark.shows("sampling.context")
@pytest.mark.parametrize(
    ("version", "sampling", "sent"),
    [
        ("2025-06-18", {}, True),
        ("2025-11-25", {}, False),
        ("2025-11-25", {"context": {}}, True),
    ],
)
def test_the_context_of_other_servers_is_left_alone_unless_the_client_declares_it(
    offer_asking: Callable[..., None], client: RawClient, version: str, sampling: dict[str, Any], sent: bool
) -> None:
    offer_asking(model_with_context)
    peer = client.handshake(version, {"sampling": sampling})
    with asking_call(peer) as (stream, question):
        assert question["params"].get("includeContext") == ("thisServer" if sent else None)
        peer.respond(question["id"], REPLY)
        assert final_value(stream) == REPLY


@pytest.mark.shows("sampling.loop-limit")
def test_a_call_that_asks_again_and_again_is_stopped(
    offer_asking: Callable[..., None], handshake_peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "MAX_QUESTIONS", 2)
    offer_asking(three_in_a_row)
    with asking_call(handshake_peer) as (stream, question):
        handshake_peer.respond(question["id"], ROOTS)
        handshake_peer.respond(stream.next()["id"], ROOTS)
        assert failure(stream) == "A call can ask at most 2 questions."


# --- Storage --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("elicitation.state", "sampling.sensitive-data")
@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_secrets_in_requests_and_responses_are_delivered_and_not_stored_readably(
    offer_asking: Callable[..., None], handshake_peer: Peer, monkeypatch: pytest.MonkeyPatch, function_kind: str
) -> None:
    take, may_take = inputs._take, Event()
    monkeypatch.setattr(inputs, "_take", lambda *args: take(*args) if may_take.is_set() else None)
    offer_asking(model_with_secret, function_kind)
    answer = {**REPLY, "_meta": {"access_token": "hunter3"}}
    with asking_call(handshake_peer) as (stream, question):
        assert question["params"]["metadata"] == {"api_key": "hunter2"}
        handshake_peer.respond(question["id"], answer)
        assert b"hunter" not in bytes(CallInput.objects.get().sealed)
        may_take.set()
        assert final_value(stream) == answer
    event = json.loads(CallEvent.objects.get().data)
    assert event["shown"]["params"]["metadata"] == {"api_key": "[redacted]"}
    assert "hunter" not in CallEvent.objects.get().data
    assert "hunter" not in Call.objects.get().payload.texts().result


@pytest.mark.shows("roots.changes", "roots.kept")
def test_roots_that_changed_are_asked_for_anew_and_nothing_of_them_is_kept(
    offer_asking: Callable[..., None], handshake_peer: Peer, eventually: Offer
) -> None:
    offer_asking(the_roots)
    for uri in ("file:///srv/one", "file:///srv/two"):
        with asking_call(handshake_peer) as (stream, question):
            assert question["method"] == "roots/list"
            handshake_peer.respond(question["id"], {"roots": [{"uri": uri}]})
            assert final_value(stream) == [{"uri": uri}]
        changed = handshake_peer.notify("notifications/roots/list_changed")
        assert (changed.status_code, changed.content) == (202, b"")
    eventually(lambda: not CallInput.objects.exists())
    assert "file:///" not in str(Session.objects.values())
    assert "file:///" not in str(CallEvent.objects.values())


def test_a_response_without_a_session_is_refused(client: RawClient) -> None:
    response = client.post({"jsonrpc": "2.0", "id": "x", "result": {}})
    assert response.status_code == 400
    assert error_of(response)["code"] == -32600
