"""The audit log in the REST API: what a call shows to whom, pages, exports, and the change log."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.rest import Api
from tests.worlds import NOON, World
from tools_app.audit.search import pages
from tools_app.models import Action, Call, CallEvent, CallPayload, Change


@pytest.fixture
def admin(as_: Any) -> Api:
    return as_("admin", "token")


def copied(call: Call, **changes: Any) -> Call:
    """Another call like this one, newer, and without arguments, result and events."""
    copy = Call.objects.get(pk=call.pk)
    copy.pk = Call._meta.pk.get_default()
    for name, value in changes.items():
        setattr(copy, name, value)
    copy.save(force_insert=True)
    return copy


def test_an_operator_reads_the_facts_of_a_call_and_nothing_of_what_was_said(as_: Any, acme: World) -> None:
    Call.objects.filter(pk=acme.call.pk).update(cause="because")
    auditor, operator = (as_(role).get(f"calls/{acme.call.pk}/") for role in ("auditor", "operator"))
    said = {"arguments": '{"term": "acme words"}', "result": '{"a": 1}', "cause": "because"}
    assert {name: auditor[name] for name in said} == said
    assert {name: operator[name] for name in said} == dict.fromkeys(said)
    assert [event["data"] for event in auditor["events"]] == ['{"progress": 0.5}']
    assert [event["data"] for event in operator["events"]] == [None]
    hidden = {*said, "events"}
    assert {name: value for name, value in auditor.items() if name not in hidden} == {
        name: value for name, value in operator.items() if name not in hidden
    }


def test_a_page_of_events_has_two_hundred_unless_fewer_are_asked_for(admin: Api, acme: World) -> None:
    rows = [CallEvent(call=acme.call, sequence=n, kind="log", data="{}", at=NOON) for n in range(2, 203)]
    CallEvent.objects.bulk_create(rows)
    events = f"calls/{acme.call.pk}/events/"
    assert [event["sequence"] for event in admin.get(f"calls/{acme.call.pk}/")["events"]] == list(range(1, 201))
    for query, expected in {
        "": range(1, 201),
        "?limit=1": range(1, 2),
        "?limit=200&after=1": range(2, 202),
        "?after=200": range(201, 203),
        "?after=202": range(0),
    }.items():
        assert [event["sequence"] for event in admin.get(f"{events}{query}")] == list(expected), query
    for field, wrong in (("limit", "0"), ("limit", "201"), ("after", "-1"), ("after", str(2**31))):
        response = admin.request("GET", f"{events}?{field}={wrong}")
        assert (response.status_code, list(response.json()["errors"])) == (400, [field]), (field, wrong)


def test_a_call_whose_texts_cannot_be_decoded_is_shown_without_them(admin: Api, acme: World) -> None:
    CallPayload.objects.filter(pk=acme.call.pk).update(arguments="", result="", packed=b"damaged")
    whole = admin.get(f"calls/{acme.call.pk}/")
    assert (whole["outcome"], whole["arguments"], whole["result"]) == ("ok", "", "")


def test_the_page_before_leads_back_to_newer_calls(admin: Api, acme: World) -> None:
    newest = [copied(acme.call).pk for _ in range(2)][::-1]
    first = admin.get("calls/?limit=2")
    assert (first["previous"], first["complete"]) == (None, True)
    second = admin.get(first["next"].partition("/api/v1/")[2])
    assert ([row["id"] for row in second["results"]], second["next"]) == ([str(acme.call.pk)], None)
    back = admin.get(second["previous"].partition("/api/v1/")[2])
    assert [row["id"] for row in back["results"]] == [row["id"] for row in first["results"]] == [*map(str, newest)]


def test_a_search_that_ran_out_of_time_says_how_far_it_came(
    admin: Api, acme: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = pages.page
    monkeypatch.setattr(pages, "page", lambda *args, **options: replace(search(*args, **options), complete=False))
    page = admin.get("calls/")
    assert (page["complete"], page["searched_back_to"]) == (False, "2026-05-04T12:00:00Z")


@pytest.mark.parametrize("options", [{}, {"with_payloads": False}, {"with_payloads": True}])
def test_an_export_holds_what_its_search_finds_and_what_was_said_only_if_that_was_asked_for(
    admin: Api, acme: World, options: dict[str, bool]
) -> None:
    copied(acme.call, tool_name="other")
    created = admin.post("exports/", {"format": "jsonl", "query": "tool=acme_*&outcome=ok", **options})
    text = admin.request("GET", f"exports/{created['id']}/download/").getvalue().decode()
    assert [json.loads(line)["id"] for line in text.splitlines()] == [str(acme.call.pk)]
    assert ("acme words" in text) is created["with_payloads"] is options.get("with_payloads", False)


def test_an_export_takes_the_outcomes_as_the_address_of_a_list_in_the_admin_has_them(admin: Api, acme: World) -> None:
    for outcome in ("timeout", "lost"):
        copied(acme.call, outcome=outcome)
    created = admin.post("exports/", {"format": "jsonl", "query": "outcome=ok&outcome=timeout"})
    text = admin.request("GET", f"exports/{created['id']}/download/").getvalue().decode()
    assert {json.loads(line)["outcome"] for line in text.splitlines()} == {"ok", "timeout"}


def test_an_export_has_the_format_that_was_asked_for_and_by_default_every_call(admin: Api, acme: World) -> None:
    copied(acme.call)
    created = admin.post("exports/", {"format": "csv", "query": ""})
    response = admin.request("GET", f"exports/{created['id']}/download/")
    assert (created["format"], response.headers["Content-Type"].partition(";")[0]) == ("csv", "text/csv")
    assert len(response.getvalue().decode().splitlines()) == 3


@pytest.mark.parametrize(
    ("role", "query"),
    [
        ("admin", "nobody=knows"),
        ("admin", "since=yesterday"),
        ("admin", "outcome=good"),
        ("admin", "&".join(f"{name}={'%41' * 500}" for name in ("tool", "text")) + f"&client={'%41' * 334}"),
        ("operator", "text=words"),
    ],
)
def test_an_export_of_a_search_that_makes_no_sense_is_refused(
    as_: Any, people: dict[str, Any], role: str, query: str
) -> None:
    problem = as_(role).post("exports/", {"format": "jsonl", "query": query}, status=400)
    assert list(problem["errors"]) == ["query"]
    assert not people[role].exports.exists()


def test_a_change_has_the_values_before_and_after_it(admin: Api, acme: World) -> None:
    row = Change.objects.create(
        tenant=acme.tenant,
        via="admin",
        action=Action.CHANGED,
        kind="tool",
        object_id="1",
        before='{"title": "Old"}',
        after='{"title": "New"}',
        position=10**6,
        digest=b"d",
    )
    for shown in (admin.get(f"changes/{row.pk}/"), admin.get("changes/")["results"][0]):
        assert (shown["before"], shown["after"]) == ({"title": "Old"}, {"title": "New"})
