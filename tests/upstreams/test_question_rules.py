"""Which requests of upstreams to clients are rejected, and the bounds of a modern upstream's rounds."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.upstreams import scripted
from tests.upstreams.scripted import reply
from tests.web_services import Service
from tests.wire.client import MODERN, RawClient
from tools_app.calls import parked
from tools_app.catalog.tool_api.elicitation import for_version
from tools_app.catalog.tool_api.results import CallLost, ToolError
from tools_app.models import Outcome, ParkedCall, Upstream
from tools_app.upstreams import parking
from tools_app.upstreams.errors import ErrorResponse, TaskFailed, UpstreamFailed
from tools_app.upstreams.exchanges import exchange
from tools_app.upstreams.parking import Step, Ticket
from tools_app.upstreams.questions import InvalidQuestion, UpstreamRequest, question_of

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
HELLO = {"role": "user", "content": {"type": "text", "text": "Hello?"}}


def form(fields: dict[str, Any]) -> dict[str, Any]:
    return {"message": "Who?", "requestedSchema": {"properties": fields}}


@pytest.mark.parametrize(
    ("method", "params", "problem"),
    [
        ("elicitation/create", [], "not an object"),
        ("elicitation/create", {"message": "x" * 300_000}, "larger than"),
        ("elicitation/create", {**FORM, "message": "\0"}, "NUL"),
        ("elicitation/create", {**FORM, "requestedSchema": {"properties": []}}, "properties of the form"),
        ("elicitation/create", {**FORM, "mode": "fax"}, "elicitation is invalid"),
        ("elicitation/create", {"mode": "url", "message": "Go", "url": "http://example.com"}, "https"),
        ("sampling/createMessage", {"messages": "Hello", "maxTokens": 1}, "not a list"),
        ("sampling/createMessage", {"messages": [], "maxTokens": True}, "maxTokens"),
        ("sampling/createMessage", {"messages": [{**HELLO, "role": "system"}], "maxTokens": 1}, "neither user nor"),
        ("sampling/createMessage", {"messages": [{**HELLO, "content": {"type": "x"}}], "maxTokens": 1}, "not valid"),
        ("elicitation/create", form({"a": {"type": "object"}}), "'a' is none of these"),
        ("elicitation/create", form({"a": {"type": "array", "items": {"type": "string"}}}), "'a' is none of these"),
        ("elicitation/create", form({"a": None}), "'a' is none of these"),
        ("tools/call", {}, "not forwarded"),
    ],
)
def test_an_invalid_request_to_the_client_is_rejected_with_the_reason(method: str, params: Any, problem: str) -> None:
    with pytest.raises(InvalidQuestion, match=problem):
        question_of({"method": method, "params": params})


def test_a_form_is_as_clients_show_it() -> None:
    text, null = {"type": "string"}, {"type": "null"}
    fields = {
        "optional": {"anyOf": [text, null], "default": None, "title": None},
        "nullable": {"type": ["integer", "null"], "default": True},
        "color": {"enum": ["red"], "default": "red"},
        "id": {**text, "format": "uuid", "pattern": "^(?!0)", "minLength": 2},
        "mail": {**text, "format": "email"},
        "tags": {"type": "array", "items": {**text, "enum": ["a"]}, "default": ["a"]},
    }
    assert question_of({"method": "elicitation/create", "params": form(fields)}).params()["requestedSchema"] == {
        "type": "object",
        "properties": {
            "optional": text,
            "nullable": {"type": "integer"},
            "color": {**text, "enum": ["red"], "default": "red"},
            "id": {**text, "minLength": 2},
            "mail": fields["mail"],
            "tags": fields["tags"],
        },
    }


def test_messages_for_a_model_have_no_invalid_members() -> None:
    content = [
        {"type": "text", "text": "a", "annotations": None},
        {"type": "image", "data": "AA", "mimeType": "image/png"},
    ]
    params = {
        "messages": [{"role": "user", "content": content}],
        "maxTokens": 1,
        "systemPrompt": None,
        "temperature": 0,
    }
    question = question_of({"method": "sampling/createMessage", "params": params})
    first, second = {"type": "text", "text": "a"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}
    expected = {"messages": [{"role": "user", "content": [first, second]}], "maxTokens": 1, "temperature": 0}
    assert for_version(question, "", "2025-11-25", {}).params() == expected
    # Up to 2025-06-18, a message has one block.
    split = [{"role": "user", "content": first}, {"role": "user", "content": second}]
    assert for_version(question, "", "2025-06-18", {}).params() == {**expected, "messages": split}


@pytest.mark.parametrize(
    ("kind", "data", "error"),
    [
        ("error", {"code": -1, "message": "No", "data": [1]}, ErrorResponse(-1, "No", [1])),
        ("task failed", {"code": -2, "message": "No", "data": None}, TaskFailed(-2, "No")),
        ("failure", {"message": "Broken", "cause": "reset"}, UpstreamFailed("Broken", "reset")),
        ("problem", {"message": "Refused"}, ToolError("Refused")),
        ("lost", {"cause": "killed"}, CallLost(parking.LOST, "killed")),
        ("unanswered", {"cause": "late"}, CallLost(parking.LOST, "late")),
    ],
)
def test_a_parked_call_fails_as_it_did_in_the_process_that_held_it(kind: str, data: Any, error: Exception) -> None:
    """That may be a process of an earlier version: what a row holds keeps its form."""
    with pytest.raises(type(error)) as raised:
        Step(Ticket(uuid4(), 1), {}, {"kind": kind, "data": data}).result()
    assert (type(raised.value), str(raised.value)) == (type(error), str(error))
    assert vars(raised.value) == vars(error)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({"kind": "result", "data": {"content": []}}, Outcome.OK),
        ({"kind": "error", "data": {"code": -1, "message": "No", "data": None}}, Outcome.TOOL_ERROR),
        ({"kind": "lost", "data": {"cause": "killed"}}, Outcome.LOST),
        ({"kind": "unanswered", "data": {"cause": "late"}}, Outcome.TIMEOUT),
    ],
)
def test_the_end_of_a_parked_call_is_recorded_whichever_process_wrote_it(
    outcome: dict[str, Any], expected: Outcome
) -> None:
    row = ParkedCall(id=uuid4())
    row.output = parking.sealed(row.pk, "output", {"events": [], "outcome": outcome})
    end = parked._end_of(row)
    assert (end.outcome, end.cause) == (expected, outcome["data"].get("cause", parked.NOT_FETCHED))


def test_what_a_row_says_of_a_lost_call_keeps_its_form() -> None:
    assert parking.lost("killed") == {"kind": "lost", "data": {"cause": "killed"}}
    assert parking._problem("No") == {"kind": "problem", "data": {"message": "No"}}


def input_required(requests: Any, state: Any = None) -> dict[str, Any]:
    return {"resultType": "input_required", "inputRequests": requests, **({"requestState": state} if state else {})}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (input_required(["who"]), "asks for input in an invalid way"),
        (input_required({}), "asks for input in an invalid way"),
        (
            input_required({"who": {"method": "elicitation/create", "params": FORM}}, "x" * 70_000),
            "asks too much at once",
        ),
        (
            input_required(
                {
                    str(n): {"method": "elicitation/create", "params": FORM | {"message": "x" * 200_000}}
                    for n in range(6)
                }
            ),
            "more than 1048576 bytes at once",
        ),
        (
            input_required({"who": {"method": "elicitation/create", "params": {}}}),
            "The elicitation is invalid",
        ),
        (input_required({"who": {"method": "roots/list"}}), "cannot be asked: The client does not support roots"),
        (input_required({}, "again"), "asks to be called again without an end"),
        ({"resultType": "other"}, "a result of an unknown type"),
    ],
)
def test_invalid_input_requests_of_a_modern_upstream_are_errors(
    serve: Callable[..., Service],
    add_upstream: Callable[..., Upstream],
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    result: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr(exchange, "REPEAT_SECONDS", 0.0)
    add_upstream(f"{serve(scripted.modern(lambda _request, request: reply(request['id'], result))).url}/mcp", prefix="")
    call_result = client.peer(MODERN, {"elicitation": {}}).result("look")
    assert call_result["isError"]
    assert message in call_result["content"][0]["text"]


def test_names_of_questions_stay_unique_when_an_upstream_uses_one_again(
    serve: Callable[..., Service], add_upstream: Callable[..., Upstream], client: RawClient
) -> None:
    def answer(_request: Any, request: dict[str, Any]) -> bytes:
        responses = request["params"].get("inputResponses", {})
        round_ = int(request["params"].get("requestState", 0))
        if round_ == 2:
            return reply(request["id"], scripted.result(json.dumps(responses)))
        return reply(
            request["id"], input_required({"who": {"method": "elicitation/create", "params": FORM}}, str(round_ + 1))
        )

    add_upstream(f"{serve(scripted.modern(answer)).url}/mcp", prefix="")
    peer = client.peer(MODERN, {"elicitation": {}})
    names, result = [], peer.result("look")
    while result["resultType"] == "input_required":
        (name,) = result["inputRequests"]
        names.append(name)
        params = {"name": "look", "arguments": {}, "requestState": result["requestState"]}
        params["inputResponses"] = {name: {"action": "decline"}}
        result = peer.request("tools/call", params).json()["result"]
    assert names == ["who", "who-2"]
    assert json.loads(result["content"][0]["text"]) == {"who": {"action": "decline"}}


def test_the_open_questions_of_a_call_are_bounded_together_and_what_is_open_at_its_end_is_answered() -> None:
    """A modern client repeats them with its responses, in one request."""

    async def scenario() -> list[Any]:
        ended = asyncio.Event()

        async def work() -> dict[str, Any]:
            await ended.wait()
            return {}

        run = UpstreamRequest()
        run.start(work())
        params = FORM | {"message": "x" * 250_000}
        requests = [{"id": n, "method": "elicitation/create", "params": params} for n in range(5)]
        responses = [asyncio.ensure_future(run.answer(request)) for request in requests]
        assert len(await run.next()) == 4
        ended.set()
        return await asyncio.gather(*responses)

    *open_errors, refused_error = [response["error"]["message"] for response in asyncio.run(scenario())]
    assert "larger than 1048576 bytes together" in refused_error
    assert open_errors == ["The call has ended."] * 4
