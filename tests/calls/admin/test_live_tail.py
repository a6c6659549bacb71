"""The live tail: running and finished calls as they arrive."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.staticfiles.finders import find
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tools_app.calls.admin import live_tail
from tools_app.core.ids import least_id
from tools_app.models import Call, RunningCall

MAX_QUERIES = 12


def began(ago: float) -> dict[str, Any]:
    """The id and the start of a call that began some seconds ago."""
    moment = timezone.now() - timedelta(seconds=ago)
    return {"pk": UUID(int=least_id(moment).int | uuid4().int >> 64), "started_at": moment}


def record(world: Any, ago: float = 0, took: float = 0, **facts: Any) -> Call:
    start = began(ago)
    values = {"tenant": world.tenant, "api_key": world.apikey, "outcome": "ok", "writer": uuid4(), "tool_name": "t"}
    end = start["started_at"] + timedelta(seconds=took)
    return Call.objects.create(**{**start, "finished_at": end, "duration_us": int(took * 1e6), **values, **facts})


def poll(client: Client, /, **query: str) -> dict[str, Any]:
    response = client.get(reverse("admin:live_tail_calls"), query)
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body


def names(news: dict[str, Any]) -> list[str]:
    return [call["name"] for call in news["calls"]]


def settle(row: RunningCall, **facts: Any) -> Call:
    copied = {name: getattr(row, name) for name in ("pk", "tenant_id", "api_key_id", "tool_name", "started_at")}
    row.delete()
    ended = {"finished_at": timezone.now(), "duration_us": 1, "writer": uuid4(), "outcome": "ok"}
    return Call.objects.create(**{**copied, **ended, **facts})


@pytest.mark.parametrize(
    ("role", "seen"),
    [
        ("superuser", {"acme", "globex", "-"}),
        ("admin", {"acme"}),
        ("auditor", {"acme"}),
        ("operator", {"acme"}),
        ("stranger", {"globex"}),
    ],
)
def test_everybody_sees_the_calls_of_their_tenants(as_: Any, acme: Any, globex: Any, role: str, seen: set[str]) -> None:
    record(acme, tool_name="a")
    record(globex, tool_name="g")
    record(acme, tenant=None, api_key=None, outcome="denied", tool_name="n", cause="why-it-was-denied")
    news = poll(as_(role))
    assert {call["tenant"].lower() for call in news["calls"]} == seen
    assert "why-it-was-denied" not in str(news)


def test_strangers_are_sent_to_the_login_and_foreign_tenants_are_not_there(as_: Any, globex: Any) -> None:
    for name in ("admin:live_tail", "admin:live_tail_calls"):
        assert as_("outsider").get(reverse(name)).status_code == 302
        assert as_("anonymous").get(reverse(name)).status_code == 302
        for tenant in (str(globex.tenant.pk), str(uuid4()), "nonsense"):
            assert as_("admin").get(reverse(name), {"tenant": tenant}).status_code == 404


@pytest.mark.parametrize("role", ["admin", "operator", "superuser"])
def test_the_page_offers_only_what_its_reader_may_see(as_: Any, acme: Any, globex: Any, role: str) -> None:
    text = as_(role).get(reverse("admin:live_tail")).content.decode()
    assert "acme laptop" in text
    assert ("globex" in text.lower()) == (role == "superuser")
    assert (reverse("admin:playground") in text) == (role != "operator")


def test_the_newest_come_first_and_later_looks_bring_only_what_is_new(as_: Any, acme: Any) -> None:
    RunningCall.objects.all().delete()
    Call.objects.all().delete()
    record(acme, ago=600, tool_name="old")
    record(acme, ago=30, tool_name="new")
    client = as_("auditor")
    first = poll(client)
    assert names(first) == ["new", "old"]
    assert first["reset"]
    record(acme, tool_name="newest")
    second = poll(client, after=first["cursor"])
    assert names(second) == ["newest"]
    assert not second["reset"]


def test_a_call_that_was_seen_running_is_followed_to_its_end(as_: Any, acme: Any) -> None:
    started = began(3600)
    RunningCall.objects.all().delete()
    row = RunningCall.objects.create(
        **started,
        tenant=acme.tenant,
        api_key=acme.apikey,
        tool_name="long",
        status="queued",
        background=True,
        owner=uuid4(),
        timeout_seconds=9000,
        arguments='"words"',
    )
    client = as_("operator")
    first = poll(client)
    [running] = [call for call in first["calls"] if call["mark"]]
    assert (running["name"], running["state"]) == ("long", "queued")
    assert "words" not in str(first)

    known = {"after": first["cursor"], "known": running["mark"]}
    assert names(poll(client, **known)) == []
    RunningCall.objects.update(status="running")
    [changed] = poll(client, **known)["calls"]
    assert changed["state"] == "running"

    call = settle(row, outcome="timeout")
    news = poll(client, **known)
    [ended] = news["calls"]
    assert (ended["id"], ended["state"], ended["bad"], ended["mark"]) == (str(call.pk), "timeout", True, "")
    assert ended["url"] == reverse("admin:tools_app_call_change", args=[call.pk])
    assert news["over"] == [str(call.pk)]


def test_the_end_of_a_foreign_call_is_told_to_nobody(as_: Any, acme: Any, globex: Any) -> None:
    mark = live_tail.row_mark(globex.runningcall)
    settle(globex.runningcall)
    news = poll(as_("auditor"), after=live_tail.cursor_of(timezone.now()), known=mark)
    assert (names(news), news["over"]) == ([acme.runningcall.tool_name], [])


def test_a_short_call_that_nobody_saw_running_is_found_when_it_ends(as_: Any, acme: Any) -> None:
    acme.runningcall.delete()
    after = live_tail.cursor_of(timezone.now())
    record(acme, ago=10, took=10, tool_name="ten-seconds")
    record(acme, ago=10, took=0.1, tool_name="was-there-before")
    assert names(poll(as_("auditor"), after=after)) == ["ten-seconds"]


@pytest.mark.parametrize("role", ["auditor", "superuser"])
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"tool": "wanted"}, {"wanted"}),
        ({"outcome": "timeout"}, {"wanted", "runs"}),
        ({"client": "SPECIAL"}, {"wanted"}),
        ({"key": "anonymous"}, {"wanted"}),
        ({"tool": "wanted", "outcome": "ok"}, set()),
        ({"key": "nonsense"}, set()),
    ],
)
def test_filters_narrow_what_comes(as_: Any, acme: Any, role: str, query: dict[str, str], found: set[str]) -> None:
    RunningCall.objects.update(tool_name="runs")
    record(acme, tool_name="other")
    record(acme, tool_name="wanted", outcome="timeout", client_name="my-special-client", api_key=None)
    client = as_(role)
    # Rows of other tenants are filtered out, as everywhere.
    query = {**query, "tenant": str(acme.tenant.pk)}
    after = live_tail.cursor_of(timezone.now())
    assert set(names(poll(client, **query))) == found
    assert set(names(poll(client, **query, after=after))) == found


def test_calls_are_found_by_their_key(as_: Any, acme: Any) -> None:
    record(acme, api_key=None)
    assert set(names(poll(as_("auditor"), key=str(acme.apikey.pk)))) == {"acme_find"}


@pytest.mark.parametrize("cursor", ["", "nonsense", "9" * 40, "²", "-5", "0", "9" * 13])
def test_a_cursor_that_makes_no_sense_begins_anew(as_: Any, acme: Any, cursor: str) -> None:
    assert poll(as_("auditor"), after=cursor)["reset"]


@pytest.mark.parametrize("known", ["x", ",,", "r" * 5000, "zz0af7651916cd43dd8448eb211c80319c", "r" + "0" * 32])
def test_marks_that_make_no_sense_are_left_out(as_: Any, acme: Any, known: str) -> None:
    poll(as_("auditor"), after=live_tail.cursor_of(timezone.now()), known=known)


def test_a_look_is_bounded(as_: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tail, "MAX_LOOKED", 3)
    for number in range(5):
        record(acme, tool_name=f"n{number}")
    client = as_("superuser")
    with CaptureQueriesContext(connection) as queries:
        news = poll(client, client="nobody")
    assert news["partial"]
    statements = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(statements) <= MAX_QUERIES, "\n".join(statements)
    rows = [sql for sql in statements if 'FROM "tools_app_call"' in sql or 'FROM "tools_app_runningcall"' in sql]
    assert rows
    assert all("LIMIT 3" in sql or " IN (" in sql for sql in rows), "\n".join(rows)


def test_a_look_asks_the_database_a_few_times_whatever_it_finds(as_: Any, acme: Any) -> None:
    for number in range(15):
        record(acme, tool_name=f"n{number}")
    client = as_("auditor")
    with CaptureQueriesContext(connection) as queries:
        assert len(poll(client)["calls"]) == 17
    statements = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(statements) <= MAX_QUERIES, "\n".join(statements)


def test_a_moment_survives_its_way_to_the_browser() -> None:
    moment = datetime.fromisoformat("2026-05-04T12:00:00.123+00:00")
    assert live_tail.moment_of(live_tail.cursor_of(moment)) == moment


def test_badges_have_colours_of_their_own_in_dark() -> None:
    rules = Path(find("tools_app/calls/calls.css")).read_text()
    for badge in ("live-label", "call-level"):
        light = set(re.findall(rf"^\.({badge}\S*) {{", rules, re.MULTILINE))
        light |= set(re.findall(rf"^\.({badge}:is\(.*?\)) {{", rules, re.MULTILINE))
        assert len(light) > 1
        assert {one for one in light if f"\n.dark .{one} {{ color: " not in rules} == set()
