"""The list of calls: cursor pagination, filters and their descriptions, and saved searches."""

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.pages import rows_of
from tests.worlds import World, person
from tools_app.audit.search import pages
from tools_app.calls.admin import saved_filters
from tools_app.core.packing import pack
from tools_app.models import Call, CallPayload, Membership, Role, SavedFilter

MAX_QUERIES = 12


def record(tenant: Any, ago: float = 1, *, arguments: str = "{}", **facts: Any) -> Call:
    at = timezone.now() - timedelta(minutes=ago)
    values = {"started_at": at, "finished_at": at, "duration_us": 1, "outcome": "ok", "writer": uuid4()}
    call = Call.objects.create(tenant=tenant, **(values | facts))
    CallPayload.objects.create(call=call, arguments=arguments)
    return call


def links(response: Any) -> dict[str, str]:
    """The URLs of the links styled as buttons, by their text."""
    found = re.findall(r'<a href="(\?[^"]*)"\s+class="font-medium[^>]*>(.*?)</a>', response.content.decode(), re.DOTALL)
    return {re.sub(r"<span.*?</span>", "", words, flags=re.DOTALL).strip(): unescape(link) for link, words in found}


@pytest.fixture
def address(page: Any) -> str:
    return str(page("call", "changelist"))


@pytest.fixture
def operator(acme: World) -> Client:
    client = Client()
    client.force_login(person("operator", acme.tenant, Role.OPERATOR))
    return client


def test_pages_lead_to_older_and_newer_calls(
    as_: Any, address: str, acme: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages.page_of, "__kwdefaults__", {**(pages.page_of.__kwdefaults__ or {}), "size": 2})
    calls = [record(acme.tenant, ago) for ago in range(1, 5)]
    client = as_("auditor")
    newest = client.get(address)
    assert rows_of(newest) == calls[:2]
    assert {"Newest", "Newer"}.isdisjoint(links(newest))
    older = client.get(address + links(newest)["Older"])
    assert rows_of(older) == calls[2:]
    assert rows_of(client.get(address + links(older)["Newer"])) == calls[:2]
    assert rows_of(client.get(address + links(older)["Newest"])) == calls[:2]


def test_the_next_page_is_of_the_same_search(
    as_: Any, address: str, acme: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages.page_of, "__kwdefaults__", {**(pages.page_of.__kwdefaults__ or {}), "size": 1})
    calls = [record(acme.tenant, ago, tool_name="a&b") for ago in (1, 2)]
    record(acme.tenant, 1.5, tool_name="other")
    client = as_("auditor")
    response = client.get(address, {"tool": "a&b"})
    assert rows_of(response) == calls[:1]
    assert rows_of(client.get(address + links(response)["Older"])) == calls[1:]


@pytest.mark.parametrize("who", ["superuser", "auditor", "mixed"])
def test_a_page_takes_few_questions_to_the_database(
    as_: Any, address: str, acme: World, globex: World, people: Any, who: str, django_assert_max_num_queries: Any
) -> None:
    for ago in range(60):
        record(acme.tenant, ago, arguments="needle", api_key=acme.apikey, duration_us=ago)
    if who == "mixed":
        Membership.objects.create(user=people["auditor"], tenant=globex.tenant, role=Role.OPERATOR)
    client = as_("superuser" if who == "superuser" else "auditor")
    SavedFilter.objects.create(person=people["auditor"], name="Mine", query="tool=x")
    for query in ({}, {"text": "needle", "duration_min": "0"}, {"text": "nowhere", "tool": "*"}):
        # Three more on PostgreSQL, which set the statement timeout in a transaction.
        with django_assert_max_num_queries(MAX_QUERIES - 3 * (connection.vendor != "postgresql")):
            assert client.get(address, query).status_code == 200


def test_the_page_says_in_words_what_is_searched_for_and_drops_each(
    as_: Any, address: str, acme: World, globex: World
) -> None:
    query = {"outcome": "lost,denied", "tenant": str(acme.tenant.pk), "key": str(acme.apikey.pk), "text": "<b>"}
    response = as_("superuser").get(address, query)
    chips = {chip.text: parse_qs(chip.without) for chip in response.context["chips"]}
    assert list(chips) == ["tenant Acme", f"key {acme.apikey}", "Lost", "Denied", "contains “<b>”"]
    assert chips["Lost"]["outcome"] == ["denied"]
    assert "text" not in chips["contains “<b>”"]
    assert "<b>" not in response.content.decode()


def test_the_address_has_only_the_filters_in_use(as_: Any, address: str) -> None:
    response = as_("auditor").get(f"{address}?text=&tool=a%26b&outcome=lost&outcome=denied&client=+&since=")
    assert (response.status_code, response["Location"]) == (302, f"{address}?tool=a%26b&outcome=lost&outcome=denied")


def test_what_was_filled_in_stands_in_the_form_again(as_: Any, address: str) -> None:
    text = as_("auditor").get(address, {"since": "2026-05-04", "client": "curs", "duration_min": "5"}).content.decode()
    for value in ("2026-05-04T00:00:00", "curs", "5"):
        assert f'value="{value}"' in text


def test_what_makes_no_sense_is_said_beside_its_field(as_: Any, address: str, acme: World) -> None:
    response = as_("auditor").get(address, {"duration_min": "long", "since": "soon", "tool": "acme_find"})
    text = response.content.decode()
    assert response.status_code == 200
    assert "Write a whole number" in text
    assert "Write a day or a moment" in text
    assert 'value="soon"' in text
    assert response.context["found"] is None


def test_a_cursor_that_is_none_is_said(as_: Any, address: str) -> None:
    assert "This is no cursor" in as_("auditor").get(address, {"after": "x"}).content.decode()


def test_an_empty_list_says_what_to_do(as_: Any, address: str, acme: World) -> None:
    assert "Remove a filter" in as_("auditor").get(address, {"tool": "nothing"}).content.decode()
    Call.objects.all().delete()
    assert "To record the first call" in as_("admin").get(address).content.decode()
    # Who can add neither is not told to.
    assert "Admins of the tenant add" in as_("auditor").get(address).content.decode()


def test_a_search_that_takes_long_says_how_far_it_came(
    as_: Any, address: str, acme: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.audit.search.scan.FIRST_BATCH", 2)
    monkeypatch.setattr(pages, "BUDGET_SECONDS", 0)
    for ago in range(1, 6):
        record(acme.tenant, ago)
    response = as_("auditor").get(address, {"duration_min": "7"})
    assert "Searched 2 calls, back to " in response.content.decode()
    onward = links(response)["Search further back"]
    assert as_("auditor").get(address + onward).context["found"].searched == 2


def test_an_operator_has_no_search_for_texts(operator: Client, address: str, acme: World) -> None:
    response = operator.get(address)
    assert rows_of(response) == [acme.call]
    text = response.content.decode()
    assert 'name="text"' not in text
    assert 'name="with_payloads"' not in text
    refused = operator.get(address, {"text": "words"})
    assert refused.context["found"] is None
    assert "cannot be searched" in refused.content.decode()


def test_a_text_is_searched_for_only_where_the_person_audits(
    as_: Any, address: str, acme: World, globex: World, people: Any
) -> None:
    Membership.objects.create(user=people["auditor"], tenant=globex.tenant, role=Role.OPERATOR)
    response = as_("auditor").get(address, {"text": "words"})
    assert rows_of(response) == [acme.call]
    assert "The text was searched only in tenants" in response.content.decode()


def test_the_form_offers_what_the_person_sees_and_nothing_else(as_: Any, address: str) -> None:
    text = as_("auditor").get(address).content.decode().lower()
    assert "acme laptop" in text
    assert "acme_find" in text
    assert "globex" not in text
    assert "globex" in as_("superuser").get(address).content.decode().lower()


# --- Rows ---------------------------------------------------------------------------------------------------------


def lines_of(response: Any) -> list[str]:
    """The texts of the column with arguments and results."""
    at = response.context["table"]["headers"].index("arguments and result")
    return [unescape(re.sub(r"<(?!/?mark)[^>]*>", "", str(row[at]))) for row in response.context["table"]["rows"]]


def test_a_row_shows_the_arguments_and_what_came_of_them(as_: Any, address: str, acme: World) -> None:
    Call.objects.all().delete()
    spoken = record(acme.tenant, 1, arguments='{"city": "Bern"}')
    CallPayload.objects.filter(call=spoken).update(result='{"content": [{"type": "text", "text": "Cold,\\nwindy"}]}')
    record(acme.tenant, 2, arguments='{"n": 1}', outcome="tool_error", cause="\nDivision by zero\nmore")
    record(acme.tenant, 3, method="POST", outcome="denied", cause="A valid API key is needed.", repeated=7)
    packed = record(acme.tenant, 4)
    both = pack('{"large": "' + "x" * 50_000 + '"}', "never reached" * 50_000)
    CallPayload.objects.filter(call=packed).update(arguments="", result="", packed=both)
    record(acme.tenant, 5)
    response = as_("auditor").get(address)
    lines = lines_of(response)
    assert lines[:3] == ['{"city": "Bern"} → Cold, windy', '{"n": 1} → Division by zero', "A valid API key is needed."]
    assert lines[3].startswith('{"large": "xxx')
    assert len(lines[3]) < 250
    assert lines[4] == "-"
    denied = " ".join(str(cell) for cell in response.context["table"]["rows"][2])
    assert ("Request" in denied, "POST" in denied, "7 times" in denied) == (True, False, True)


def test_a_searched_text_is_marked_where_it_stands(as_: Any, address: str, acme: World) -> None:
    record(acme.tenant, 1, arguments=f'{{"note": "{"a" * 500} needle <b> {"z" * 500}"}}')
    record(acme.tenant, 2, cause="the Needle broke", outcome="tool_error")
    lines = lines_of(as_("auditor").get(address, {"text": "NEEDLE"}))
    assert re.fullmatch(r"…a+ <mark>needle</mark> <b> z+…", lines[0])
    assert lines[1] == "the <mark>Needle</mark> broke"


def test_an_operator_sees_no_line_and_an_auditor_only_those_of_their_tenants(
    as_: Any, address: str, acme: World, globex: World, people: Any
) -> None:
    assert "arguments and result" not in as_("operator").get(address).context["table"]["headers"]
    Membership.objects.create(user=people["auditor"], tenant=globex.tenant, role=Role.OPERATOR)
    response = as_("auditor").get(address)
    lines = dict(zip([call.tenant for call in rows_of(response)], lines_of(response), strict=True))
    assert "acme words" in lines[acme.tenant]
    assert lines[globex.tenant] == "-"


# --- Kept searches -----------------------------------------------------------------------------------------------


@pytest.fixture
def post_action(as_: Any) -> Any:
    """Post an action on saved searches."""

    def post(who: str, what: str, **fields: str) -> Any:
        return as_(who).post(f"/admin/tools_app/call/filters/{what}", fields, follow=True)

    return post


def test_a_search_is_kept_opened_renamed_and_deleted(post_action: Any, address: str, as_: Any) -> None:
    response = post_action("auditor", "", name="Slow ones", query="duration_min=500&tool=a&nonsense=1")
    assert "saved as “Slow ones”" in response.content.decode()
    saved = SavedFilter.objects.get()
    assert (saved.person.username, saved.query) == ("auditor", "tool=a&duration_min=500")
    assert f'href="{address}?tool=a&amp;duration_min=500"' in as_("auditor").get(address).content.decode()
    post_action("auditor", f"{saved.pk}/rename/", name="Slow calls")
    assert SavedFilter.objects.get().name == "Slow calls"
    post_action("auditor", f"{saved.pk}/delete/")
    assert not SavedFilter.objects.exists()


def test_the_same_name_again_replaces_the_search(post_action: Any) -> None:
    for query in ("tool=a", "tool=b"):
        post_action("auditor", "", name="Mine", query=query)
    post_action("admin", "", name="Mine", query="tool=c")
    assert set(SavedFilter.objects.values_list("person__username", "query")) == {
        ("auditor", "tool=b"),
        ("admin", "tool=c"),
    }


def test_kept_searches_of_others_are_neither_seen_nor_touched(post_action: Any, as_: Any, address: str) -> None:
    post_action("admin", "", name="Secret plan", query="tool=a")
    saved = SavedFilter.objects.get()
    assert "Secret plan" not in as_("superuser").get(address).content.decode()
    for what in ("rename/", "delete/"):
        assert post_action("superuser", f"{saved.pk}/{what}", name="Mine").status_code == 404
    assert SavedFilter.objects.get().name == "Secret plan"


@pytest.mark.parametrize("fields", [{"name": ""}, {"name": "x" * 101}, {"query": "key=no"}, {"query": "a" * 5000}])
def test_a_search_without_a_name_or_sense_is_not_kept(post_action: Any, fields: dict[str, str]) -> None:
    assert (
        "was not saved" in post_action("auditor", "", **{"name": "Mine", "query": "tool=a"} | fields).content.decode()
    )
    assert not SavedFilter.objects.exists()


def test_a_name_is_not_given_twice(post_action: Any) -> None:
    for name in ("One", "Two"):
        post_action("auditor", "", name=name, query="tool=a")
    post_action("auditor", f"{SavedFilter.objects.get(name='Two').pk}/rename/", name="One")
    assert set(SavedFilter.objects.values_list("name", flat=True)) == {"One", "Two"}


def test_nobody_keeps_searches_without_end(post_action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_filters, "MAX_SAVED", 1)
    post_action("auditor", "", name="One", query="tool=a")
    assert "Delete one first" in post_action("auditor", "", name="Two", query="tool=a").content.decode()
    assert SavedFilter.objects.count() == 1


@pytest.mark.parametrize("who", ["outsider", "anonymous"])
def test_who_has_no_tenant_keeps_nothing(as_: Any, acme: World, who: str) -> None:
    as_(who).post("/admin/tools_app/call/filters/", {"name": "Mine", "query": "tool=a"})
    assert not SavedFilter.objects.exists()
