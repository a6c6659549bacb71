"""The audit log: calls are shown escaped, whatever they contain."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from tests.pages import rows_of
from tools_app.calls.admin import events as call_events
from tools_app.models import Call, CallEvent, CallPayload

ATTACK = '<script>alert("x")</script>'


def record(tenant: Any = None, **facts: Any) -> Call:
    now = timezone.now()
    values = {"started_at": now, "finished_at": now, "duration_us": 1, "outcome": "denied", "writer": uuid4()}
    return Call.objects.create(tenant=tenant, **(values | facts))


def listed_calls(client: Any, page: Any, /, **query: str) -> list[Any]:
    return [call.tool_name for call in rows_of(client.get(page("call", "changelist"), query))]


def test_a_call_is_shown_with_arguments_result_and_events(as_: Any, page: Any, acme: Any) -> None:
    text = as_("auditor").get(page("call", "change", acme.call)).content.decode()
    for shown in ("acme words", "&quot;a&quot;: 1", "progress", "0.5", "1.5 ms", "acme laptop", "acme-client"):
        assert shown in text


def test_whatever_a_client_sent_is_escaped(as_: Any, page: Any, acme: Any) -> None:
    names = ("tool_name", "client_name", "client_version", "request_id", "cause", "method", "protocol_version")
    call = record(acme.tenant, **{name: ATTACK[: 10 if name == "protocol_version" else None] for name in names})
    CallPayload.objects.create(call=call, arguments=ATTACK, result=f'["{ATTACK[8:]}", "{"<b>"}"]')
    CallEvent.objects.create(call=call, sequence=1, kind="<i>", data=ATTACK)
    client = as_("auditor")
    for address in (page("call", "change", call), page("call", "changelist")):
        text = client.get(address).content.decode()
        assert "&lt;script&gt;" in text
        assert not any(raw in text for raw in ("<script>alert", "<b>", "<i>", '</script>"]'))


def test_a_call_without_payload_or_with_a_cut_off_one_is_shown(as_: Any, page: Any, acme: Any) -> None:
    client = as_("auditor")
    bare = record(acme.tenant, arguments_size=70_000)
    assert "Not recorded (70000 bytes)" in client.get(page("call", "change", bare)).content.decode()
    CallPayload.objects.filter(call=acme.call).update(arguments='{"term": "cut o')
    assert "cut o" in client.get(page("call", "change", acme.call)).content.decode()


def test_a_call_whose_tool_key_and_session_are_gone_is_shown(as_: Any, page: Any, acme: Any) -> None:
    key = acme.apikey.pk
    acme.tool.delete()
    acme.apikey.delete()
    client = as_("auditor")
    text = client.get(page("call", "change", acme.call)).content.decode()
    assert "acme_find" in text
    assert f"{key} (deleted)" in text
    assert client.get(page("call", "changelist")).status_code == 200


def test_denials_without_a_tenant_are_for_superusers(as_: Any, page: Any, acme: Any) -> None:
    denial = record(cause="Unknown key.")
    assert as_("superuser").get(page("call", "change", denial)).status_code == 200
    assert as_("admin").get(page("call", "change", denial)).status_code == 404
    assert denial.pk not in {call.pk for call in rows_of(as_("admin").get(page("call", "changelist")))}


@pytest.mark.parametrize(
    "query",
    [
        {"tool": "need*"},
        {"text": "THE-CAUSE"},
        {"client": "special"},
        {"outcome__exact": "timeout"},
        {"outcome": "timeout,lost", "client": "special-client"},
        {"tool": "needle"},
        {"method": "resources/read"},
        {"period": "1h"},
        {"since": "2026-06-01"},
        {"since": "2026-06-01T00:00", "until": "9000-01-01"},
    ],
)
def test_calls_are_found_by_what_an_auditor_knows(as_: Any, page: Any, acme: Any, query: dict[str, str]) -> None:
    moment = timezone.now() - timedelta(minutes=5)
    record(
        acme.tenant,
        started_at=moment,
        tool_name="needle",
        method="resources/read",
        outcome="timeout",
        cause="the-cause",
        client_name="special-client",
    )
    assert listed_calls(as_("auditor"), page, **query) == ["needle"]


def test_calls_are_found_by_key(as_: Any, page: Any, acme: Any) -> None:
    record(acme.tenant)
    assert listed_calls(as_("auditor"), page, key=str(acme.apikey.pk)) == ["acme_find"]


def test_a_tenant_that_there_is_not_has_no_calls(as_: Any, page: Any) -> None:
    assert listed_calls(as_("superuser"), page, tenant="nonsense") == []


def test_a_foreign_key_as_a_filter_finds_nothing(as_: Any, page: Any, globex: Any) -> None:
    assert listed_calls(as_("auditor"), page, key=str(globex.apikey.pk)) == []


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        ("progress", {"progress": 3, "total": 10, "message": "Row 3", "progressToken": "p"}, ["3 of 10", "Row 3"]),
        ("progress", {"progress": 0.5}, ["0.5"]),
        ("log", {"level": "error", "logger": "db", "data": {"rows": 7}}, ["error", "db", "&quot;rows&quot;: 7"]),
        ("log", {"level": "debug", "data": "plain words"}, ["debug", "plain words"]),
        (
            "request",
            {"name": "elicitation-1", "method": "elicitation/create", "params": {"message": "Which city?"}},
            ["Asked the client: elicitation/create", "Which city?"],
        ),
        ("request", {"name": "roots-1", "method": "roots/list", "params": {}}, ["Asked the client: roots/list"]),
        ("pause", {}, ["The stream was closed"]),
        ("unheard-of", {"a": [1]}, ["unheard-of", "&quot;a&quot;"]),
        ("progress", ["no object"], ["no object"]),
    ],
)
def test_what_a_call_said_is_told_in_words(
    as_: Any, page: Any, acme: Any, kind: str, data: Any, shown: list[str]
) -> None:
    CallEvent.objects.filter(call=acme.call).update(kind=kind, data=json.dumps(data))
    text = as_("auditor").get(page("call", "change", acme.call)).content.decode()
    for words in shown:
        assert words in text


def test_an_event_that_was_cut_off_is_shown_as_it_is(as_: Any, page: Any, acme: Any) -> None:
    CallEvent.objects.filter(call=acme.call).update(kind="log", data='{"level": "info", "data": "cut o')
    assert "&quot;cut o" in as_("auditor").get(page("call", "change", acme.call)).content.decode()


def test_no_page_shows_more_events_than_it_can_bear(
    as_: Any, page: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_events, "MAX_EVENTS", 2)
    CallEvent.objects.bulk_create(
        CallEvent(call=acme.call, sequence=number, kind="log", data=f'{{"data": "said-{number}"}}') for number in (2, 3)
    )
    text = as_("auditor").get(page("call", "change", acme.call)).content.decode()
    assert "only the first events" in text
    assert "said-2" in text
    assert "said-3" not in text


@pytest.mark.parametrize(
    ("method", "model", "name"),
    [("resources/read", "resource", "docs://acme/guide"), ("prompts/get", "prompt", "acme_greet")],
)
def test_a_reading_leads_to_what_was_read(as_: Any, page: Any, acme: Any, method: str, model: str, name: str) -> None:
    call = record(acme.tenant, outcome="ok", method=method, tool_name=name)
    client = as_("auditor")
    assert (
        f'href="{page(model, "change", acme.row(model))}"' in client.get(page("call", "change", call)).content.decode()
    )
    acme.row(model).delete()
    assert name in client.get(page("call", "change", call)).content.decode()
    assert method in client.get(page("call", "changelist")).content.decode()


def test_a_call_that_ended_or_waits_with_a_question_says_so(as_: Any, page: Any, acme: Any) -> None:
    call = record(acme.tenant, outcome="input_required")
    type(acme.runningcall).objects.update(status="waiting")
    client = as_("auditor")
    for address in (page("call", "changelist"), page("call", "change", call)):
        assert "Input required" in client.get(address).content.decode()
    for address in (page("runningcall", "changelist"), page("runningcall", "change", acme.runningcall)):
        assert "Waiting for input" in client.get(address).content.decode()


def test_a_running_calls_sealed_arguments_are_not_shown(as_: Any, page: Any, acme: Any) -> None:
    type(acme.runningcall).objects.update(sealed_arguments=b"sealed-bytes", arguments='{"password": "[redacted]"}')
    text = as_("superuser").get(page("runningcall", "change", acme.runningcall)).content.decode()
    assert "[redacted]" in text
    assert "sealed-bytes" not in text
