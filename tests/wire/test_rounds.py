"""Input requests in the modern era: a result that requires input, and the request repeated with the responses."""

import base64
import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tests.wire.client import META, MODERN, Peer, RawClient, call_params, error_of, message_of, modern_request, text_of
from tools_app.calls import conversation
from tools_app.catalog import authoring
from tools_app.models import Call, CallAnswer, CallEvent, CallInput, RunningCall, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import Elicit, ListRoots, Sample, ToolContext, prompt, resource, tool, user

ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
FUNCTION_KINDS = ("async", "sync", "worker")
PAGE = "https://example.org/sign-in"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
AGE = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
ADA = {"action": "accept", "content": {"name": "Ada"}}
OLD = {"action": "accept", "content": {"age": 36}}
REPLY = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
ROOTS = {"roots": [{"uri": "file:///srv/one"}]}
TOOLS = ("greet", "register", "both", "page", "model", "roots", "trip", "quiet")
INVALID_PARAMS = -32602

Offer = Callable[..., Any]


async def greeting(context: ToolContext) -> str:
    who = await context.elicit("Who?", NAME, key="who")
    return f"hello {who.content['name']}" if who.accepted else who.action


@pytest.fixture(autouse=True)
def eliciting_tools(registries: None, offer: Offer) -> None:
    @tool
    async def greet(context: ToolContext, greeted: str = "") -> str:
        return await greeting(context)

    @tool
    async def register(context: ToolContext) -> str:
        runs = context.state["runs"] = context.state.get("runs", 0) + 1
        who = await context.elicit("Who?", NAME, key="who")
        context.state["known as"] = f"plain {who.content['name']}"
        old = await context.elicit("How old?", AGE, key="old")
        return f"{context.state['known as']}, {old.content['age']}, after {runs} runs"

    @tool
    async def both(context: ToolContext) -> str:
        answers = await context.ask({"who": Elicit("Who?", NAME), "old": Elicit("How old?", AGE)})
        return f"{answers['who'].content} {answers['old'].content}"

    @tool
    async def page(context: ToolContext) -> str:
        return (await context.elicit_url("Please sign in", PAGE, key="page")).action

    @tool
    async def model(context: ToolContext) -> str:
        result_text = await context.sample([user("The capital of France?")], 50, key="model")
        return str(result_text["content"]["text"])

    @tool
    async def roots(context: ToolContext) -> str:
        return str([root["uri"] for root in await context.list_roots(key="roots")])

    @tool
    async def trip(context: ToolContext) -> str:
        context.progress(1)
        answers = await context.ask(
            {"who": Elicit("Who?", NAME), "model": Sample([user("Where?")], 50), "roots": ListRoots()}
        )
        return json.dumps(sorted(answers))

    @tool
    async def quiet(context: ToolContext) -> str:
        return "done"

    offer(*TOOLS)


@pytest.fixture
def modern_peer(client: RawClient) -> Peer:
    """A client of the modern era that declares all capabilities."""
    return client.peer(MODERN, ALL)


def retry_params(input_required: Mapping[str, Any], responses: Mapping[str, Any], **params: Any) -> dict[str, Any]:
    """The parameters of the next round."""
    return {**params, "requestState": input_required["requestState"], "inputResponses": dict(responses)}


def first_round(peer: Peer, name: str, **arguments: Any) -> dict[str, Any]:
    """The result of a first request, which requires input."""
    result = message_of(peer.call(name, arguments))["result"]
    assert result["resultType"] == "input_required", result
    return result


def retry(
    peer: Peer, name: str, input_required: Mapping[str, Any], responses: Mapping[str, Any], **arguments: Any
) -> dict[str, Any]:
    params = retry_params(input_required, responses, **call_params(name, arguments))
    return message_of(peer.request("tools/call", params, id=2))["result"]


def result_text(result: Mapping[str, Any]) -> str:
    assert result["resultType"] == "complete", result
    assert result["isError"] is False, result
    return result["content"][0]["text"]


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
def test_a_form_with_a_pattern_that_has_no_bound_is_not_asked_for(
    client: RawClient, registries: None, offer: Offer, version: str
) -> None:
    @tool
    async def ask(context: ToolContext) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string", "pattern": "(?=.*x)z"}}}
        return (await context.elicit("Who?", form)).action

    offer("ask")
    result = message_of(client.peer(version, ALL).call("ask"))["result"]
    assert (result["isError"], result["content"][0]["text"]) == (True, "An error occurred invoking 'ask'.")
    assert "properties.name.pattern: '(?=.*x)z' uses look-around" in Call.objects.get(tool_name="ask").cause


# --- Rounds --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("base.explicit-state", "base.any-connection")
@pytest.mark.parametrize("function_kind", FUNCTION_KINDS)
def test_a_call_asks_in_its_answer_and_goes_on_over_a_fresh_connection(
    offer: Offer, make_client: Callable[[str], RawClient], key: str, function_kind: str
) -> None:
    def greet_and_wait(context: ToolContext) -> str:
        return context.wait_for(greeting(context))

    tool(name="ask", background=function_kind == "worker")(greeting if function_kind == "async" else greet_and_wait)
    offer("ask")
    input_required = first_round(make_client(key).peer(MODERN, ALL), "ask")
    question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": NAME}}
    assert input_required["inputRequests"] == {"who": question}
    assert isinstance(input_required["requestState"], str)
    assert META + "serverInfo" in input_required["_meta"]
    assert "content" not in input_required
    assert result_text(retry(make_client(key).peer(MODERN, ALL), "ask", input_required, {"who": ADA})) == "hello Ada"
    assert list(Call.objects.order_by("started_at").values_list("outcome", flat=True)) == ["input_required", "ok"]
    assert not CallEvent.objects.exists()
    assert not RunningCall.objects.exists()
    assert not CallInput.objects.exists()


def test_each_round_remembers_the_answers_and_the_state_of_those_before(modern_peer: Peer) -> None:
    first = first_round(modern_peer, "register")
    assert list(first["inputRequests"]) == ["who"]
    second = retry(modern_peer, "register", first, {"who": ADA})
    assert list(second["inputRequests"]) == ["old"]
    assert result_text(retry(modern_peer, "register", second, {"old": OLD})) == "plain Ada, 36, after 3 runs"
    outcomes = Call.objects.order_by("started_at").values_list("outcome", flat=True)
    assert list(outcomes) == ["input_required", "input_required", "ok"]


@pytest.mark.shows("elicitation.content")
@pytest.mark.parametrize(
    ("responses", "open_ones"),
    [
        ({}, {"who", "old"}),
        ({"who": ADA}, {"old"}),
        ({"old": OLD, "other": OLD}, {"who"}),
        ({"who": ADA, "old": {"action": "accept", "content": {"age": "36"}}}, {"old"}),
        ({"who": ADA, "old": {"action": "accept"}}, {"old"}),
        ({"who": ADA, "old": {"action": "perhaps"}}, {"old"}),
        ({"who": ADA, "old": {}}, {"old"}),
        ({"who": OLD, "old": ADA}, {"who", "old"}),
    ],
)
def test_missing_and_invalid_responses_are_requested_again(
    modern_peer: Peer, responses: dict[str, Any], open_ones: set[str]
) -> None:
    first = first_round(modern_peer, "both")
    assert set(first["inputRequests"]) == {"who", "old"}
    second = retry(modern_peer, "both", first, responses)
    assert set(second["inputRequests"]) == open_ones
    last = retry(modern_peer, "both", second, {name: {"who": ADA, "old": OLD}[name] for name in open_ones})
    assert result_text(last) == "{'name': 'Ada'} {'age': 36}"


def test_an_invalid_response_is_explained_in_the_next_request_and_the_third_ends_the_call(modern_peer: Peer) -> None:
    input_required = first_round(modern_peer, "both")
    assert input_required["inputRequests"]["old"]["params"]["message"] == "How old?"
    for _ in range(2):
        input_required = retry(
            modern_peer, "both", input_required, {"who": ADA, "old": {"action": "accept", "content": {"age": "x"}}}
        )
        assert list(input_required["inputRequests"]) == ["old"]
        message = input_required["inputRequests"]["old"]["params"]["message"]
        assert message == 'How old?\n\nThe last answer was invalid: age: "x" is not of type "integer".'
    result = retry(modern_peer, "both", input_required, {"old": {"action": "accept", "content": {}}})
    assert (result["resultType"], result["isError"]) == ("complete", True)
    text = "No answer to 'old' could be used, of 3. The last one: age: 'age' is required"
    assert result["content"][0]["text"] == text
    assert Call.objects.order_by("started_at").last().outcome == "tool_error"


def test_missing_responses_are_requested_without_a_limit(modern_peer: Peer) -> None:
    input_required = first_round(modern_peer, "both")
    for _ in range(5):
        input_required = retry(modern_peer, "both", input_required, {})
        assert input_required["inputRequests"]["who"]["params"]["message"] == "Who?"
    assert (
        result_text(retry(modern_peer, "both", input_required, {"who": ADA, "old": OLD}))
        == "{'name': 'Ada'} {'age': 36}"
    )


def test_answers_are_taken_without_a_state_too(modern_peer: Peer) -> None:
    params = {**call_params("both"), "inputResponses": {"who": ADA, "old": OLD}}
    assert result_text(message_of(modern_peer.request("tools/call", params))["result"]) == "{'name': 'Ada'} {'age': 36}"


def test_questions_of_all_kinds_go_out_in_one_answer_and_never_on_the_stream(modern_peer: Peer) -> None:
    with modern_peer.stream("tools/call", call_params("trip", meta={"progressToken": "t"})) as stream:
        *notifications, response = stream.read_to_end()
    assert [message["method"] for message in notifications] == ["notifications/progress"]
    assert {name: request["method"] for name, request in response["result"]["inputRequests"].items()} == {
        "who": "elicitation/create",
        "model": "sampling/createMessage",
        "roots": "roots/list",
    }
    responses = {"who": ADA, "model": REPLY, "roots": ROOTS}
    assert result_text(retry(modern_peer, "trip", response["result"], responses)) == '["model", "roots", "who"]'


@pytest.mark.parametrize(
    ("name", "response", "expected"),
    [
        ("model", {"model": REPLY}, "Paris"),
        ("roots", {"roots": ROOTS}, "['file:///srv/one']"),
        ("page", {"page": {"action": "accept"}}, "accept"),
    ],
)
def test_models_roots_and_pages_are_asked_for_in_rounds(
    modern_peer: Peer, name: str, response: dict[str, Any], expected: str
) -> None:
    assert result_text(retry(modern_peer, name, first_round(modern_peer, name), response)) == expected


@pytest.mark.shows("elicitation.declined")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_elicitation_is_a_response(modern_peer: Peer, action: str) -> None:
    input_required = first_round(modern_peer, "greet")
    assert result_text(retry(modern_peer, "greet", input_required, {"who": {"action": action}})) == action


@pytest.mark.shows("sampling.content")
@pytest.mark.parametrize("reply", [{}, {**REPLY, "role": "system"}, {**REPLY, "content": 5}, {**REPLY, "content": {}}])
def test_a_model_that_says_nothing_sensible_is_asked_again(modern_peer: Peer, reply: dict[str, Any]) -> None:
    again = retry(modern_peer, "model", first_round(modern_peer, "model"), {"model": reply})
    assert list(again["inputRequests"]) == ["model"]


@pytest.mark.shows("elicitation.address")
def test_a_page_has_its_mode_its_message_and_its_address_and_no_id(modern_peer: Peer) -> None:
    question = first_round(modern_peer, "page")["inputRequests"]["page"]
    assert question["params"] == {"mode": "url", "message": "Please sign in", "url": PAGE}


def test_prompts_and_resources_ask_in_rounds_too(
    modern_peer: Peer, offer_prompts: Offer, offer_resources: Offer
) -> None:
    prompt(name="greeting")(greeting)
    resource("docs://greeting")(greeting)
    offer_prompts("greeting")
    offer_resources("docs://greeting")
    for method, params in (("prompts/get", {"name": "greeting"}), ("resources/read", {"uri": "docs://greeting"})):
        input_required = message_of(modern_peer.request(method, params))["result"]
        assert (input_required["resultType"], list(input_required["inputRequests"])) == ("input_required", ["who"])
        assert "ttlMs" not in input_required
        final = message_of(modern_peer.request(method, retry_params(input_required, {"who": ADA}, **params)))["result"]
        assert final["resultType"] == "complete"
        assert "hello Ada" in json.dumps(final)


@pytest.mark.shows("mrtr.no-return")
def test_a_client_that_never_comes_back_leaves_nothing_behind(modern_peer: Peer, tenant: Tenant) -> None:
    for _ in range(3):
        first_round(modern_peer, "register")
    assert not RunningCall.objects.exists()
    assert not CallAnswer.objects.exists()
    assert not CallInput.objects.exists()
    assert result_text(message_of(modern_peer.call("quiet"))["result"]) == "done"


# --- The state -----------------------------------------------------------------------------------------------------


def rejection_of(peer: Peer, params: Mapping[str, Any], method: str = "tools/call") -> dict[str, Any]:
    response = peer.request(method, params)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert error["code"] == INVALID_PARAMS
    return error


@pytest.mark.parametrize(
    "tamper",
    [
        lambda state: ("A" if state[0] != "A" else "B") + state[1:],
        lambda state: state[:-4],
        lambda state: state + "AAAA",
        lambda state: state[::-1],
        lambda state: "",
        lambda state: "not base64!",
        lambda state: "Grüße",
        lambda state: 5,
        lambda state: None,
        lambda state: {"state": state},
    ],
)
def test_a_state_that_was_changed_is_refused(modern_peer: Peer, tamper: Callable[[str], Any]) -> None:
    input_required = first_round(modern_peer, "greet")
    params = retry_params(input_required, {"who": ADA}, **call_params("greet"))
    assert rejection_of(modern_peer, {**params, "requestState": tamper(input_required["requestState"])})["data"] == {
        "field": "requestState"
    }
    assert Call.objects.count() == 1


@pytest.mark.shows("mrtr.replay")
def test_a_state_expires(modern_peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    started_at = 2_000_000_000.0
    monkeypatch.setattr(conversation, "time", SimpleNamespace(time=lambda: started_at))
    input_required = first_round(modern_peer, "greet")
    monkeypatch.setattr(conversation, "time", SimpleNamespace(time=lambda: started_at + conversation.STATE_SECONDS - 1))
    assert result_text(retry(modern_peer, "greet", input_required, {"who": ADA})) == "hello Ada"
    monkeypatch.setattr(conversation, "time", SimpleNamespace(time=lambda: started_at + conversation.STATE_SECONDS + 1))
    error = rejection_of(modern_peer, retry_params(input_required, {"who": ADA}, **call_params("greet")))
    assert "expired" in error["message"]


@pytest.mark.shows("elicitation.kept-state", "elicitation.bound", "mrtr.replay")
def test_a_state_is_bound_to_its_key(
    modern_peer: Peer, make_client: Callable[[str], RawClient], tenant: Tenant, other_tenant: Tenant, other_key: str
) -> None:
    authoring.add_code_tools(other_tenant, ["greet"])
    input_required = first_round(modern_peer, "greet")
    for foreign_key in (keys.issue(tenant, "colleague")[1], other_key):
        peer = make_client(foreign_key).peer(MODERN, ALL)
        rejection_of(peer, retry_params(input_required, {"who": ADA}, **call_params("greet")))
    assert result_text(retry(modern_peer, "greet", input_required, {"who": ADA})) == "hello Ada"


@pytest.mark.shows("mrtr.replay")
def test_a_state_is_bound_to_its_request(modern_peer: Peer, offer_prompts: Offer) -> None:
    @prompt(name="greet")
    async def greet_by_prompt(context: ToolContext, greeted: str = "") -> str:
        return await greeting(context)

    offer_prompts("greet")
    input_required = first_round(modern_peer, "greet", greeted="you")
    rejection_of(modern_peer, retry_params(input_required, {"who": ADA}, **call_params("register")))
    rejection_of(modern_peer, retry_params(input_required, {"who": ADA}, **call_params("greet", {"greeted": "me"})))
    rejection_of(modern_peer, retry_params(input_required, {"who": ADA}, **call_params("greet")))
    rejection_of(
        modern_peer,
        retry_params(input_required, {"who": ADA}, name="greet", arguments={"greeted": "you"}),
        "prompts/get",
    )
    assert result_text(retry(modern_peer, "greet", input_required, {"who": ADA}, greeted="you")) == "hello Ada"


def test_a_state_is_encrypted(modern_peer: Peer) -> None:
    second = retry(modern_peer, "register", first_round(modern_peer, "register"), {"who": ADA})
    decoded = base64.urlsafe_b64decode(second["requestState"])
    for word in (b"Ada", b"plain", b"runs", b"known", b"who", b"answers", b"expires"):
        assert word not in decoded
    assert "Ada" not in second["requestState"]


@pytest.mark.parametrize("responses", [None, 5, "who", [ADA], {"who": "Ada"}, {"who": None}, {"who": [ADA]}])
def test_answers_of_a_wrong_shape_are_refused(modern_peer: Peer, responses: Any) -> None:
    error = rejection_of(modern_peer, {**call_params("greet"), "inputResponses": responses})
    assert error["data"] == {"field": "inputResponses"}
    assert not RunningCall.objects.exists()


# --- Capabilities ---------------------------------------------------------------------------------------------------


@pytest.mark.shows("elicitation.modes", "roots.capability")
@pytest.mark.parametrize(
    ("capabilities", "name", "required_capabilities"),
    [
        ({}, "greet", {"elicitation": {}}),
        ({"elicitation": {"url": {}}}, "greet", {"elicitation": {}}),
        ({"elicitation": {}}, "page", {"elicitation": {"url": {}}}),
        ({"elicitation": {"form": {}}}, "page", {"elicitation": {"url": {}}}),
        ({"elicitation": {}}, "model", {"sampling": {}}),
        ({"elicitation": {}, "sampling": {}}, "roots", {"roots": {}}),
        ({"elicitation": {}, "sampling": {}}, "trip", {"roots": {}}),
    ],
)
def test_a_client_is_not_asked_for_what_it_did_not_declare(
    client: RawClient, capabilities: dict[str, Any], name: str, required_capabilities: dict[str, Any]
) -> None:
    response = client.peer(MODERN, capabilities).call(name)
    assert response.status_code == 400
    error = error_of(response)
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": required_capabilities})
    call = Call.objects.get()
    assert (call.outcome, call.rpc_error) == ("rejected", -32021)


@pytest.mark.shows("sampling.tools-capability")
def test_a_model_is_given_tools_only_if_the_client_declares_that_it_takes_them(client: RawClient, offer: Offer) -> None:
    @tool
    async def look(context: ToolContext) -> str:
        await context.sample([user("Look")], 50, key="look", toolChoice={"mode": "auto"})
        return "looked"

    offer("look")
    error = error_of(client.peer(MODERN, ALL).call("look"))
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"sampling": {"tools": {}}}})
    able = client.peer(MODERN, {"sampling": {"tools": {}}})
    assert result_text(retry(able, "look", first_round(able, "look"), {"look": REPLY})) == "looked"


@pytest.mark.shows("base.no-memory")
def test_what_a_client_declared_before_on_the_same_connection_does_not_count(client: RawClient) -> None:
    assert message_of(client.peer(MODERN, ALL).call("greet"))["result"]["resultType"] == "input_required"
    assert error_of(client.peer(MODERN, {}).call("greet"))["code"] == -32021
    body, headers = modern_request("tools/call", call_params("greet"), capabilities=ALL)
    assert client.post(body, headers).status_code == 200
    del body["params"]["_meta"][META + "clientCapabilities"]
    response = client.post(body, headers)
    assert response.status_code == 400
    assert error_of(response)["code"] == -32602


@pytest.mark.shows("base.any-connection")
def test_rounds_of_several_calls_take_turns_on_several_connections(
    make_client: Callable[[str], RawClient], key: str
) -> None:
    peers = [make_client(key).peer(MODERN, ALL) for _ in range(2)]
    pending = {name: first_round(peers[0], "greet", greeted=name) for name in ("one", "two")}
    for turn, (name, input_required) in enumerate(pending.items()):
        for peer in (peers[turn], peers[1 - turn]):
            who = {"action": "accept", "content": {"name": name}}
            assert result_text(retry(peer, "greet", input_required, {"who": who}, greeted=name)) == f"hello {name}"


# --- Records --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("sampling.sensitive-data")
@pytest.mark.parametrize("background", [False, True])
def test_secrets_in_answers_and_state_are_not_in_the_audit_log(
    modern_peer: Peer, offer: Offer, background: bool
) -> None:
    @tool(background=background)
    async def reveal(context: ToolContext) -> str:
        first = await context.sample([user("Hi")], 50, key="first", metadata={"api_key": "hunter2"})
        context.state["password"] = "hunter2"
        await context.list_roots(key="second")
        return str(first["_meta"]["token"])

    offer("reveal")
    first = first_round(modern_peer, "reveal")
    assert first["inputRequests"]["first"]["params"]["metadata"] == {"api_key": "hunter2"}
    second = retry(modern_peer, "reveal", first, {"first": {**REPLY, "_meta": {"token": "hunter2"}}})
    assert result_text(retry(modern_peer, "reveal", second, {"second": ROOTS})) == "hunter2"
    calls = Call.objects.filter(outcome="input_required").order_by("started_at").select_related("payload")
    records = [orjson.loads(call.payload.texts().result) for call in calls]
    assert [list(record["inputRequests"]) for record in records] == [["first"], ["second"]]
    assert records[1]["answers"]["first"]["_meta"] == {"token": "[redacted]"}
    assert records[1]["state"] == {"password": "[redacted]"}
    assert not any("hunter2" in call.payload.texts().result + call.payload.texts().arguments for call in calls)


def test_responses_to_no_request_are_ignored(modern_peer: Peer) -> None:
    params = {**call_params("quiet"), "inputResponses": {"who": ADA}}
    assert text_of(modern_peer.request("tools/call", params)) == "done"
