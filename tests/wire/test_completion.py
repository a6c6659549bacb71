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
def offered(
    registries: None, offer_prompts: Callable[..., object], offer_resources: Callable[..., object]
) -> list[object]:
    """A prompt and a template whose values are suggested in each way there is."""

    @prompt
    def visit(city: str, country: str, number: str, season: Literal["summer", "Spring", "midsummer"], note: str) -> str:
        return f"{city} {country} {number} {season} {note}"

    @completer(visit, "city")
    def cities(typed: str, given: Mapping[str, str]) -> Iterable[str]:
        return [city for city in CITIES.get(given.get("country", ""), ["nowhere"]) if city.startswith(typed)]

    @completer(visit, "number")
    async def numbers(typed: str, given: Mapping[str, str]) -> Iterable[str]:
        return (number for number in THOUSAND if number.startswith(typed))

    @completer(visit, "country")
    def countries(typed: str, given: Mapping[str, str]) -> Iterable[str]:
        raise RuntimeError("the password is hunter2")

    @resource("docs://{shelf}/{page}")
    def page(shelf: Literal["new", "old"], page: str) -> str:
        return f"{shelf} {page}"

    @completer(page, "page")
    def pages(typed: str, given: Mapping[str, str]) -> Iterable[str]:
        return [f"{given.get('shelf')}-{typed}"]

    return [offer_prompts("visit"), offer_resources("docs://{shelf}/{page}")]


def complete(peer: Peer, ref: object, name: object, typed: object = "", **more: Any) -> Any:
    return peer.request("completion/complete", {"ref": ref, "argument": {"name": name, "value": typed}, **more})


def completed(peer: Peer, ref: object, name: str, typed: str = "", **given: str) -> dict[str, Any]:
    response = complete(peer, ref, name, typed, **({"context": {"arguments": given}} if given else {}))
    assert response.status_code == 200, response.text
    return dict(message_of(response)["result"]["completion"])


def refused(peer: Peer, params: object) -> dict[str, Any]:
    """The error of bad parameters, which is what the answer has to be."""
    response = peer.request("completion/complete", params)  # type: ignore[arg-type]
    assert response.status_code == (400 if peer.is_modern else 200)
    error = error_of(response)
    assert error["code"] == -32602
    return error


def test_an_argument_of_a_prompt_is_completed_by_its_completer(peer: Peer, offered: list[object]) -> None:
    assert completed(peer, PROMPT, "city", "B", country="ch") == {
        "values": ["Bern", "Basel"],
        "total": 2,
        "hasMore": False,
    }
    assert completed(peer, PROMPT, "city", "B", country="no")["values"] == ["Bergen"]
    assert completed(peer, PROMPT, "city")["values"] == ["nowhere"]
    assert completed(peer, PROMPT, "city", "Z") == {"values": [], "total": 0, "hasMore": False}


def test_a_variable_of_a_template_is_completed_by_its_completer(peer: Peer, offered: list[object]) -> None:
    assert completed(peer, PAGES, "page", "a", shelf="new")["values"] == ["new-a"]
    assert completed(peer, PAGES, "shelf", "o")["values"] == ["old"]


@pytest.mark.shows("completion.relevance")
def test_what_begins_like_the_typed_comes_before_what_contains_it(peer: Peer, offered: list[object]) -> None:
    assert completed(peer, PROMPT, "season", "SUM")["values"] == ["summer", "midsummer"]
    assert completed(peer, PROMPT, "season")["values"] == ["summer", "Spring", "midsummer"]
    assert completed(peer, PROMPT, "season", "sp")["values"] == ["Spring"]


@pytest.mark.shows("completion.at-most-100")
def test_there_are_never_more_than_a_hundred(peer: Peer, offered: list[object]) -> None:
    assert completed(peer, PROMPT, "number") == {"values": THOUSAND[:100], "total": 1000, "hasMore": True}
    assert completed(peer, PROMPT, "number", "00") == {"values": THOUSAND[:100], "total": 100, "hasMore": False}


def test_an_argument_that_nobody_completes_has_no_suggestions(peer: Peer, offered: list[object]) -> None:
    assert completed(peer, PROMPT, "note", "x") == {"values": [], "total": 0, "hasMore": False}


def test_values_that_an_admin_wrote_are_suggested(peer: Peer, tenant: Tenant) -> None:
    arguments = [{"name": "city", "values": ["Bern", "Oslo", "Oberbern"]}, {"name": "note"}]
    authoring.save_prompt(
        Prompt(tenant=tenant, name="weather", kind=PromptKind.TEMPLATE, arguments=arguments, messages=[])
    )
    ref = {"type": "ref/prompt", "name": "weather"}
    assert completed(peer, ref, "city", "bern")["values"] == ["Bern", "Oberbern"]
    assert completed(peer, ref, "note", "bern")["values"] == []


def test_a_completion_is_no_call(peer: Peer, offered: list[object]) -> None:
    completed(peer, PROMPT, "season")
    assert not Call.objects.exists()


@pytest.mark.shows("completion.errors", "completion.inputs")
def test_a_reference_to_what_is_not_there_is_refused(peer: Peer, offered: list[object]) -> None:
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
        refused(peer, {"ref": ref, "argument": argument})


@pytest.mark.shows("completion.errors", "completion.inputs")
def test_arguments_that_are_missing_unknown_or_of_a_wrong_kind_are_refused(peer: Peer, offered: list[object]) -> None:
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
        refused(peer, {"ref": PROMPT, "argument": argument})
    argument = {"name": "city", "value": ""}
    for context in ("ch", {"arguments": ["ch"]}, {"arguments": {"country": 5}}):
        refused(peer, {"ref": PROMPT, "argument": argument, "context": context})


@pytest.mark.shows("completion.errors")
def test_of_a_completer_that_fails_the_client_learns_only_that_it_did(peer: Peer, offered: list[object]) -> None:
    response = complete(peer, PROMPT, "country")
    assert response.status_code == 200
    assert error_of(response) == {"code": -32603, "message": "An error occurred completing the argument."}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_completer_that_takes_too_long_is_given_up(
    client: RawClient, offered: list[object], monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    released = threading.Event()

    def blocking(typed: str, given: Mapping[str, str]) -> Iterable[str]:
        released.wait(10)
        return []

    async def waiting(typed: str, given: Mapping[str, str]) -> Iterable[str]:
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
def test_what_is_disabled_or_another_tenants_looks_like_what_never_was(
    peer: Peer, offered: list[Any], other_tenant: Tenant
) -> None:
    authoring.add_code_prompts(other_tenant, ["visit"])
    authoring.add_code_resources(other_tenant, ["docs://{shelf}/{page}"])
    for (row,) in offered:
        authoring.set_enabled(row, enabled=False)
    for ref, name in ((PROMPT, "season"), (PAGES, "shelf")):
        never = {**ref, "name": "never", "uri": "never://{season}"}
        told = refused(peer, {"ref": ref, "argument": {"name": name, "value": ""}})
        of_never = refused(peer, {"ref": never, "argument": {"name": name, "value": ""}})
        assert told["message"] == f"'{ref.get('name') or ref.get('uri')}' with an argument '{name}' is not there."
        assert told.keys() == of_never.keys()


@pytest.mark.shows("completion.rate-limit")
def test_who_asks_too_often_is_told_when_to_come_back(
    peer: Peer, offered: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "MAX_PER_MINUTE", 2)
    assert [complete(peer, PROMPT, "season").status_code for _ in range(3)] == [200, 200, 429]
    response = complete(peer, PROMPT, "season")
    assert 0 < int(response.headers["retry-after"]) <= 60
    assert error_of(response)["data"]["retryAfterSeconds"] == int(response.headers["retry-after"])


def test_one_tenants_asking_is_not_anothers(
    peer: Peer,
    offered: list[object],
    make_client: Callable[..., RawClient],
    other_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "MAX_PER_MINUTE", 1)
    other = make_client(other_key).peer(peer.version)
    assert [complete(peer, PROMPT, "season").status_code for _ in range(2)] == [200, 429]
    assert error_of(complete(other, PROMPT, "season"))["code"] == -32602
