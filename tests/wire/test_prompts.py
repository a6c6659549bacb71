"""`prompts/list` and `prompts/get` (prompts)."""

import base64
from collections.abc import Callable
from typing import Any, Literal

import orjson
import pytest

from tests.wire.client import Peer, RawClient, error_of, message_of
from tests.wire.valid import check_valid
from tools_app.catalog import authoring
from tools_app.models import ApiKey, Call, Prompt, PromptKind, Tenant
from tools_app.toolkit import (
    PromptResult,
    ProtocolError,
    ToolContext,
    ToolError,
    assistant,
    audio,
    embedded,
    image,
    link,
    prompt,
    text,
    user,
)

EVERY_BYTE = bytes(range(256))
INSIDE = "the password is hunter2"

OfferPrompts = Callable[..., list[Prompt]]


@pytest.fixture
def review(registries: None, offer_prompts: OfferPrompts) -> list[str]:
    """A prompt with arguments, and the code of each run."""
    codes: list[str] = []

    @prompt(title="Review")
    def review(code: str, tone: Literal["kind", "stern"] = "kind") -> PromptResult:
        """Review some code.

        :param code: What to review.
        """
        codes.append(code)
        return PromptResult([user(f"Be {tone}: {code}"), assistant("Well:")], f"A {tone} review")

    offer_prompts("review")
    return codes


def get(peer: Peer, name: object, arguments: object = None) -> Any:
    return peer.request("prompts/get", {"name": name, "arguments": arguments})


def result_of(peer: Peer, name: str, **arguments: str) -> dict[str, Any]:
    response = get(peer, name, arguments)
    assert response.status_code == 200, response.text
    result = dict(message_of(response)["result"])
    check_valid("prompts/get", peer.version, result)
    return result


def texts_of(peer: Peer, name: str, **arguments: str) -> list[str]:
    return [message["content"]["text"] for message in result_of(peer, name, **arguments)["messages"]]


def error_for(peer: Peer, name: object, arguments: object = None) -> dict[str, Any]:
    """The error of invalid parameters, which the response must be."""
    response = get(peer, name, arguments)
    assert response.status_code == (400 if peer.is_modern else 200)
    error = error_of(response)
    assert error["code"] == -32602
    return error


def test_prompts_are_listed_by_name_with_the_fields_of_the_revision(
    peer: Peer, review: list[str], offer_prompts: OfferPrompts
) -> None:
    @prompt
    def another() -> str:
        return "x"

    offer_prompts("another")
    first, second = message_of(peer.request("prompts/list"))["result"]["prompts"]
    assert (first["name"], first["arguments"]) == ("another", [])
    expected = {
        "name": "review",
        "title": "Review",
        "description": "Review some code.",
        "arguments": [
            {"name": "code", "description": "What to review.", "required": True},
            {"name": "tone", "description": "", "required": False},
        ],
    }
    if peer.version < "2025-06-18":
        del expected["title"]
    assert second == expected


def test_a_prompt_is_filled_in_with_its_arguments(peer: Peer, review: list[str]) -> None:
    result = result_of(peer, "review", code="x = 1", tone="stern")
    assert result["description"] == "A stern review"
    assert result["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Be stern: x = 1"}},
        {"role": "assistant", "content": {"type": "text", "text": "Well:"}},
    ]
    assert texts_of(peer, "review", code="")[0] == "Be kind: "


@pytest.mark.parametrize("arguments", [None, {}])
def test_a_prompt_without_arguments_needs_none(
    peer: Peer, registries: None, offer_prompts: OfferPrompts, arguments: object
) -> None:
    @prompt
    async def greet(context: ToolContext) -> str:
        """Greet."""
        return f"Hello from {context.caller.tenant_slug}"

    offer_prompts("greet")
    result = message_of(get(peer, "greet", arguments))["result"]
    assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hello from acme"}}]
    assert result["description"] == "Greet."


@pytest.mark.shows("prompts.arguments", "prompts.errors")
def test_missing_and_unknown_arguments_are_named_before_anything_runs(peer: Peer, review: list[str]) -> None:
    error = error_for(peer, "review", {"lines": "5", "tone": "kind"})
    assert error["message"] == "Invalid arguments for 'review': 'code' is required; 'lines' is not expected."
    assert error["data"] == {"prompt": "review", "missing": ["code"], "unexpected": ["lines"]}
    assert error_for(peer, "review")["data"]["missing"] == ["code"]
    assert review == []
    assert [call.outcome for call in Call.objects.all()] == ["rejected", "rejected"]


@pytest.mark.shows("prompts.arguments")
def test_arguments_that_are_no_texts_are_refused_before_anything_runs(peer: Peer, review: list[str]) -> None:
    for arguments in ({"code": 5}, {"code": None}, {"code": ["x"]}, ["code"], "code", 5):
        error = error_for(peer, "review", arguments)
        assert error["message"] == "params.arguments must be an object of strings."
    assert review == []


@pytest.mark.shows("prompts.arguments")
def test_a_value_that_an_argument_does_not_take_is_refused(peer: Peer, review: list[str]) -> None:
    error = error_for(peer, "review", {"code": "x", "tone": "cruel"})
    assert error["data"]["prompt"] == "review"
    assert "'tone'" in error["message"]
    assert review == []


@pytest.mark.shows("prompts.errors", "prompts.injection")
def test_a_prompt_that_is_unknown_disabled_or_another_tenants_looks_the_same(
    peer: Peer, review: list[str], other_tenant: Tenant
) -> None:
    (foreign,) = authoring.add_code_prompts(other_tenant, ["review"])
    Prompt.objects.filter(pk=foreign.pk).update(name="plan")
    authoring.set_enabled(Prompt.objects.get(name="review"), enabled=False)
    for name in ("review", "plan", "never", "", "Review"):
        expected = {"code": -32602, "message": f"Unknown prompt: '{name}'", "data": {"prompt": name}}
        assert error_for(peer, name, {"code": "x"}) == expected
    assert message_of(peer.request("prompts/list"))["result"]["prompts"] == []


def test_a_name_that_is_no_text_is_refused(peer: Peer) -> None:
    for name in (None, 5, ["review"]):
        assert error_for(peer, name)["message"] == "params.name must be a string."


@pytest.mark.shows("prompts.errors")
def test_of_a_function_that_breaks_the_client_learns_only_that_it_did(
    peer: Peer, registries: None, offer_prompts: OfferPrompts
) -> None:
    @prompt
    def broken() -> str:
        raise RuntimeError(INSIDE)

    offer_prompts("broken")
    response = get(peer, "broken")
    assert response.status_code == 200
    assert error_of(response) == {"code": -32603, "message": "An error occurred invoking 'broken'."}
    assert f"RuntimeError: {INSIDE}" in Call.objects.get().cause


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ToolError("No such book."), {"code": -32603, "message": "No such book."}),
        (ProtocolError("Closed.", 7), {"code": 7, "message": "Closed."}),
    ],
)
def test_a_function_may_raise_an_error_for_its_client(
    peer: Peer, registries: None, offer_prompts: OfferPrompts, problem: Exception, expected: object
) -> None:
    @prompt
    async def closed() -> str:
        raise problem

    offer_prompts("closed")
    assert error_of(get(peer, "closed")) == expected


@pytest.mark.shows("prompts.audio", "prompts.image")
def test_each_content_comes_as_the_revision_knows_it(peer: Peer, registries: None, offer_prompts: OfferPrompts) -> None:
    @prompt
    def show() -> list[dict[str, Any]]:
        return [
            user(image(EVERY_BYTE, "image/png")),
            user(audio(EVERY_BYTE, "audio/wav")),
            assistant(embedded("docs://a", text="words", mime_type="text/plain")),
            assistant(embedded("docs://b", blob=b"\x89")),
            user(link("docs://c", "C", mimeType="text/plain")),
            user(text("end")),
        ]

    offer_prompts("show")
    messages = result_of(peer, "show")["messages"]
    assert [message["role"] for message in messages] == ["user", "user", "assistant", "assistant", "user", "user"]
    picture, sound, words, data, reference, end = (message["content"] for message in messages)
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(picture["data"], validate=True) == EVERY_BYTE
    if peer.version >= "2025-03-26":
        assert (sound["type"], sound["mimeType"]) == ("audio", "audio/wav")
        assert base64.b64decode(sound["data"], validate=True) == EVERY_BYTE
    else:
        assert (sound["type"], "audio/wav" in sound["text"]) == ("text", True)
    resource = {"uri": "docs://a", "mimeType": "text/plain", "text": "words"}
    assert words == {"type": "resource", "resource": resource}
    assert data == {"type": "resource", "resource": {"uri": "docs://b", "blob": "iQ=="}}
    linked = {"type": "resource_link", "uri": "docs://c", "name": "C", "mimeType": "text/plain"}
    assert reference == (linked if peer.version >= "2025-06-18" else text("C: docs://c"))
    assert end == text("end")


def test_a_prompt_is_recorded_like_a_call(peer: Peer, review: list[str], tenant: Tenant) -> None:
    get(peer, "review", {"code": "x"})
    call = Call.objects.get()
    assert (call.method, call.tool_name, call.tool, call.tenant) == ("prompts/get", "review", None, tenant)
    assert (call.outcome, call.http_status, call.rpc_error) == ("ok", 200, None)
    assert orjson.loads(call.payload.texts().arguments) == {"code": "x"}
    assert orjson.loads(call.payload.texts().result)["description"] == "A kind review"


def test_a_prompt_takes_from_the_limits(client: RawClient, review: list[str]) -> None:
    ApiKey.objects.update(calls_per_minute=0)
    response = get(client.handshake(), "review", {"code": "x"})
    assert (response.status_code, error_of(response)["data"]["scope"]) == (429, "key")
    assert review == []


# --- What an admin writes ---------------------------------------------------------------------------------------------


@pytest.fixture
def create_prompt(tenant: Tenant) -> Prompt:
    """A prompt of messages with placeholders."""
    return authoring.save_prompt(
        Prompt(
            tenant=tenant,
            name="weather/now",
            kind=PromptKind.TEMPLATE,
            title="Weather",
            description="Ask for the weather.",
            arguments=[{"name": "city", "description": "Where?", "required": True}, {"name": "unit"}],
            messages=[
                {"role": "user", "text": 'What is {city} like, in {unit}? {"json": {other}} {city}'},
                {"role": "assistant", "text": "Let me see."},
            ],
        )
    )


def test_placeholders_become_what_was_filled_in_and_other_braces_stay(peer: Peer, create_prompt: Prompt) -> None:
    question, answer = texts_of(peer, "weather/now", city="Bern", unit="°C")
    assert question == 'What is Bern like, in °C? {"json": {other}} Bern'
    assert answer == "Let me see."
    assert texts_of(peer, "weather/now", city="Bern")[0].startswith("What is Bern like, in ? ")
    assert result_of(peer, "weather/now", city="Bern")["description"] == "Ask for the weather."
    assert error_for(peer, "weather/now", {"unit": "°C"})["data"]["missing"] == ["city"]


@pytest.mark.shows("prompts.injection")
def test_an_argument_stays_a_text_whatever_it_says(peer: Peer, create_prompt: Prompt) -> None:
    for value in ("{unit}", "{{unit}}", "{city}", "{secret:TOKEN}", "%(unit)s", "${unit}", "\\1", "{0.__class__}"):
        question, _ = texts_of(peer, "weather/now", city=value, unit="hot")
        assert question == f'What is {value} like, in hot? {{"json": {{other}}}} {value}'


def test_an_argument_that_stands_in_many_places_cannot_fill_the_memory(peer: Peer, tenant: Tenant) -> None:
    text = "{who}" * 2000
    authoring.save_prompt(
        Prompt(
            tenant=tenant,
            name="echoes",
            kind=PromptKind.TEMPLATE,
            arguments=[{"name": "who"}],
            messages=[{"role": "user", "text": text}] * 50,
        )
    )
    params = {"name": "echoes", "arguments": {"who": "x" * 500_000}}
    assert "The prompt is larger than" in error_of(peer.request("prompts/get", params))["message"]
    params["arguments"] = {"who": "x"}
    assert len(message_of(peer.request("prompts/get", params))["result"]["messages"]) == 50
