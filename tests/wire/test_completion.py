"""`completion/complete` (completion)."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import pytest

from tests.wire.client import Peer, RawClient, error_of, message_of
from tools_app.catalog import authoring
from tools_app.methods import completion
from tools_app.models import Call, Prompt, PromptKind, Tenant
from tools_app.toolkit import completer, prompt, resource

CITIES = {"ch": ["Bern", "Basel"], "no": ["Oslo", "Bergen"]}
THOUSAND = [f"{number:04}" for number in range(1000)]
PROMPT = {"type": "ref/prompt", "name": "visit"}
PAGES = {"type": "ref/resource", "uri": "docs://{shelf}/{page}"}


@pytest.fixture
def offered_rows(
    registries: None, offer_prompts: Callable[..., object], offer_resources: Callable[..., object]
) -> list[object]:
    """A prompt and a template with every kind of completion."""

    @prompt
    def visit(city: str, country: str, number: str, season: Literal["summer", "Spring", "midsummer"], note: str) -> str:
        return f"{city} {country} {number} {season} {note}"

    @completer(visit, "city")
    def cities(value: str, arguments: Mapping[str, str]) -> Iterable[str]:
        return [city for city in CITIES.get(arguments.get("country", ""), ["nowhere"]) if city.startswith(value)]

    @completer(visit, "number")
    async def numbers(value: str, arguments: Mapping[str, str]) -> Iterable[str]:
        return (number for number in THOUSAND if number.startswith(value))

    @completer(visit, "country")
    def countries(value: str, arguments: Mapping[str, str]) -> Iterable[str]:
        raise RuntimeError("the password is hunter2")

    @resource("docs://{shelf}/{page}")
    def page(shelf: Literal["new", "old"], page: str) -> str:
        return f"{shelf} {page}"

    @completer(page, "page")
    def pages(value: str, arguments: Mapping[str, str]) -> Iterable[str]:
        return [f"{arguments.get('shelf')}-{value}"]

    return [offer_prompts("visit"), offer_resources("docs://{shelf}/{page}")]


def complete(peer: Peer, ref: object, name: object, value: object = "", **more: Any) -> Any:
    return peer.request("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}, **more})


def completion_of(peer: Peer, ref: object, name: str, value: str = "", **arguments: str) -> dict[str, Any]:
    response = complete(peer, ref, name, value, **({"context": {"arguments": arguments}} if arguments else {}))
    assert response.status_code == 200, response.text
    return dict(message_of(response)["result"]["completion"])


def error_for(peer: Peer, params: object) -> dict[str, Any]:
    """The error of invalid parameters, which the response must be."""
    response = peer.request("completion/complete", params)  # type: ignore[arg-type]
    assert response.status_code == (400 if peer.is_modern else 200)
    error = error_of(response)
    assert error["code"] == -32602
    return error


def test_an_argument_of_a_prompt_is_completed_by_its_completer(peer: Peer, offered_rows: list[object]) -> None:
    assert completion_of(peer, PROMPT, "city", "B", country="ch") == {
        "values": ["Bern", "Basel"],
        "total": 2,
        "hasMore": False,
    }
    assert completion_of(peer, PROMPT, "city", "B", country="no")["values"] == ["Bergen"]
    assert completion_of(peer, PROMPT, "city")["values"] == ["nowhere"]
    assert completion_of(peer, PROMPT, "city", "Z") == {"values": [], "total": 0, "hasMore": False}


def test_a_variable_of_a_template_is_completed_by_its_completer(peer: Peer, offered_rows: list[object]) -> None:
    assert completion_of(peer, PAGES, "page", "a", shelf="new")["values"] == ["new-a"]
    assert completion_of(peer, PAGES, "shelf", "o")["values"] == ["old"]


@pytest.mark.shows("completion.relevance")
def test_values_that_start_with_the_input_come_before_those_that_contain_it(
    peer: Peer, offered_rows: list[object]
) -> None:
    assert completion_of(peer, PROMPT, "season", "SUM")["values"] == ["summer", "midsummer"]
    assert completion_of(peer, PROMPT, "season")["values"] == ["summer", "Spring", "midsummer"]
    assert completion_of(peer, PROMPT, "season", "sp")["values"] == ["Spring"]


@pytest.mark.shows("completion.at-most-100")
def test_there_are_never_more_than_a_hundred(peer: Peer, offered_rows: list[object]) -> None:
    assert completion_of(peer, PROMPT, "number") == {"values": THOUSAND[:100], "total": 1000, "hasMore": True}
    assert completion_of(peer, PROMPT, "number", "00") == {"values": THOUSAND[:100], "total": 100, "hasMore": False}


def test_an_argument_without_a_completer_has_no_suggestions(peer: Peer, offered_rows: list[object]) -> None:
    assert completion_of(peer, PROMPT, "note", "x") == {"values": [], "total": 0, "hasMore": False}


def test_values_that_an_admin_wrote_are_suggested(peer: Peer, tenant: Tenant) -> None:
    arguments = [{"name": "city", "values": ["Bern", "Oslo", "Oberbern"]}, {"name": "note"}]
    authoring.save_prompt(
        Prompt(tenant=tenant, name="weather", kind=PromptKind.TEMPLATE, arguments=arguments, messages=[])
    )
    ref = {"type": "ref/prompt", "name": "weather"}
    assert completion_of(peer, ref, "city", "bern")["values"] == ["Bern", "Oberbern"]
    assert completion_of(peer, ref, "note", "bern")["values"] == []


def test_a_completion_is_no_call(peer: Peer, offered_rows: list[object]) -> None:
    completion_of(peer, PROMPT, "season")
    assert not Call.objects.exists()


@pytest.mark.shows("completion.errors", "completion.inputs")
def test_an_unknown_reference_is_rejected(peer: Peer, offered_rows: list[object]) -> None:
    argument = {"name": "city", "value": ""}
    for ref in (
        {"type": "ref/prompt", "name": "never"},
        {"type": "ref/resource", "uri": "docs://never/{page}"},
        {"type": "ref/resource", "uri": "docs://new/a"},
        {"type": "ref/prompt", "uri": "docs://{shelf}/{page}"},
        {"type": "ref/prompt", "name": 5},
        {"type": "ref/resource", "uri": None},
        {"type": "ref/tool", "name": "visit"},
        {"name": "visit"},
        "visit",
        None,
    ):
        error_for(peer, {"ref": ref, "argument": argument})


@pytest.mark.shows("completion.errors", "completion.inputs")
def test_arguments_that_are_missing_unknown_or_of_a_wrong_kind_are_refused(
    peer: Peer, offered_rows: list[object]
) -> None:
    for argument in (
        None,
        "city",
        {},
        {"name": "city"},
        {"value": "B"},
        {"name": "city", "value": 5},
        {"name": 5, "value": "B"},
        {"name": "street", "value": "B"},
    ):
        error_for(peer, {"ref": PROMPT, "argument": argument})
    argument = {"name": "city", "value": ""}
    for context in ("ch", {"arguments": ["ch"]}, {"arguments": {"country": 5}}):
        error_for(peer, {"ref": PROMPT, "argument": argument, "context": context})


@pytest.mark.shows("completion.errors")
def test_of_a_completer_that_fails_the_client_learns_only_that_it_did(peer: Peer, offered_rows: list[object]) -> None:
    response = complete(peer, PROMPT, "country")
    assert response.status_code == 200
    assert error_of(response) == {"code": -32603, "message": "An error occurred completing the argument."}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_completer_that_takes_too_long_is_given_up(
    client: RawClient, offered_rows: list[object], monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    released = threading.Event()

    def blocking(value: str, arguments: Mapping[str, str]) -> Iterable[str]:
        released.wait(10)
        return []

    async def waiting(value: str, arguments: Mapping[str, str]) -> Iterable[str]:
        await asyncio.Event().wait()
        return []

    registered = authoring.prompts.registered("visit")
    assert registered is not None
    registered.function.complete("note", waiting if is_async else blocking)
    monkeypatch.setattr(completion, "TIMEOUT_SECONDS", 0.05)
    response = complete(client.handshake(), PROMPT, "note")
    released.set()
    assert error_of(response)["code"] == -32603


@pytest.mark.shows("completion.access")
def test_disabled_and_foreign_references_look_like_unknown_ones(
    peer: Peer, offered_rows: list[Any], other_tenant: Tenant
) -> None:
    authoring.add_code_prompts(other_tenant, ["visit"])
    authoring.add_code_resources(other_tenant, ["docs://{shelf}/{page}"])
    for (row,) in offered_rows:
        authoring.set_enabled(row, enabled=False)
    for ref, name in ((PROMPT, "season"), (PAGES, "shelf")):
        unknown = {**ref, "name": "never", "uri": "never://{season}"}
        error = error_for(peer, {"ref": ref, "argument": {"name": name, "value": ""}})
        error_of_unknown = error_for(peer, {"ref": unknown, "argument": {"name": name, "value": ""}})
        assert error["message"] == f"'{ref.get('name') or ref.get('uri')}' with an argument '{name}' is not there."
        assert error.keys() == error_of_unknown.keys()


@pytest.mark.shows("completion.rate-limit")
def test_too_many_completions_are_rejected_with_a_retry_delay(
    peer: Peer, offered_rows: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "MAX_PER_MINUTE", 2)
    assert [complete(peer, PROMPT, "season").status_code for _ in range(3)] == [200, 200, 429]
    response = complete(peer, PROMPT, "season")
    assert 0 < int(response.headers["retry-after"]) <= 60
    assert error_of(response)["data"]["retryAfterSeconds"] == int(response.headers["retry-after"])


def test_completions_of_one_tenant_do_not_count_for_another(
    peer: Peer,
    offered_rows: list[object],
    make_client: Callable[..., RawClient],
    other_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "MAX_PER_MINUTE", 1)
    other = make_client(other_key).peer(peer.version)
    assert [complete(peer, PROMPT, "season").status_code for _ in range(2)] == [200, 429]
    assert error_of(complete(other, PROMPT, "season"))["code"] == -32602
