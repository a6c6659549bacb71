"""The page of one call: its events, result and timing, and who may read them."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.worlds import NOON
from tools_app.calls.admin import payloads
from tools_app.calls.admin.events import MAX_TEXT, row_of
from tools_app.catalog import authoring
from tools_app.catalog.revisions import source_of
from tools_app.models import Call, CallEvent, CallPayload, Change, RunningCall, ToolRevision

MAX_QUERIES = 12
PARTS = ("arguments", "events", "result")
SECRET_WORDS = ("acme words", "&quot;a&quot;: 1", ">0.5<", "why-it-failed", "running-words")


def download(call: Call, part: str) -> str:
    return reverse("admin:tools_app_call_download", args=[call.pk, part])


def shown(client: Client, page: Any, call: Any) -> str:
    return str(client.get(page(call._meta.model_name, "change", call)).content.decode())


# --- Who sees what --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor", "operator"])
def test_what_was_sent_said_and_answered_is_for_admins_and_auditors(as_: Any, page: Any, acme: Any, role: str) -> None:
    Call.objects.filter(pk=acme.call.pk).update(cause="why-it-failed")
    RunningCall.objects.filter(pk=acme.runningcall.pk).update(arguments='{"term": "running-words"}')
    text = shown(as_(role), page, acme.call) + shown(as_(role), page, acme.runningcall)
    assert [words in text for words in SECRET_WORDS] == [role != "operator"] * len(SECRET_WORDS)
    for fact in ("acme_find", "acme laptop", "acme-client"):
        assert fact in text
    assert ("As an operator" in text) == (role == "operator")


def test_a_call_shows_for_whom_it_was_and_what_its_client_received(
    as_: Any, page: Any, acme: Any, people: dict[str, User]
) -> None:
    assert "Acted for" not in shown(as_("auditor"), page, acme.call)
    for model, row in ((Call, acme.call), (RunningCall, acme.runningcall)):
        model.objects.filter(pk=row.pk).update(person=people["operator"])
        text = shown(as_("auditor"), page, row)
        assert "Acted for" in text
        assert "operator" in text
    Call.objects.filter(pk=acme.call.pk).update(person=4711, shaped_size=12)
    text = shown(as_("auditor"), page, acme.call)
    assert "account 4711 (deleted)" in text
    assert "The client received 12 bytes" in text


@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", 200), ("admin", 200), ("auditor", 200), ("operator", 403), ("stranger", 404), ("outsider", 302)],
)
def test_downloads_are_for_those_who_may_read_payloads(as_: Any, acme: Any, role: str, status: int) -> None:
    client = as_(role)
    assert [client.get(download(acme.call, part)).status_code for part in PARTS] == [status] * len(PARTS)


@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", 200), ("admin", 200), ("auditor", 200), ("operator", 200), ("stranger", 404), ("outsider", 302)],
)
def test_the_news_of_a_running_call_are_for_its_tenants_members(as_: Any, acme: Any, role: str, status: int) -> None:
    CallEvent.objects.create(call_id=acme.runningcall.pk, sequence=1, kind="log", data='{"data": "said"}')
    response = as_(role).get(reverse("admin:tools_app_runningcall_news", args=[acme.runningcall.pk]))
    assert response.status_code == status
    if status == 200:
        assert [event["text"] for event in response.json()["events"]] == ([] if role == "operator" else ["said"])


@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", 302), ("admin", 302), ("auditor", 403), ("operator", 403), ("stranger", 404)],
)
def test_admins_cancel_calls_and_that_is_recorded(as_: Any, acme: Any, role: str, status: int) -> None:
    address = reverse("admin:tools_app_runningcall_cancel", args=[acme.runningcall.pk])
    assert as_(role).get(address).status_code in (403, 404)
    assert as_(role).post(address).status_code == status
    acme.runningcall.refresh_from_db()
    assert acme.runningcall.cancel_requested == (status == 302)
    recorded = Change.objects.filter(object_id=str(acme.runningcall.pk)).values_list("person_name", "tenant", "after")
    expected = [(role, acme.tenant.pk, '{"cancel_requested":true}')] if status == 302 else []
    assert list(recorded) == expected


def test_a_call_is_not_cancelled_without_a_token_of_the_page(acme: Any, people: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["admin"])
    address = reverse("admin:tools_app_runningcall_cancel", args=[acme.runningcall.pk])
    assert client.post(address).status_code == 403
    acme.runningcall.refresh_from_db()
    assert not acme.runningcall.cancel_requested


@pytest.mark.parametrize("role", ["admin", "auditor", "operator"])
def test_the_button_that_cancels_is_shown_to_those_who_may(as_: Any, page: Any, acme: Any, role: str) -> None:
    assert ("Cancel call" in shown(as_(role), page, acme.runningcall)) == (role == "admin")


def test_an_address_that_names_no_row_finds_nothing(as_: Any, acme: Any) -> None:
    client = as_("superuser")
    for name in ("tools_app_runningcall_news", "tools_app_runningcall_cancel", "tools_app_session_end"):
        for row_id in (uuid4(), "nonsense"):
            assert client.post(reverse(f"admin:{name}", args=[row_id])).status_code == 404


# --- A call that ends while somebody looks --------------------------------------------------------------------


def settle(row: RunningCall) -> Call:
    row_id, tenant = row.pk, row.tenant_id
    row.delete()
    return Call.objects.create(
        pk=row_id, tenant_id=tenant, finished_at=NOON, duration_us=1, outcome="cancelled", writer=uuid4()
    )


def test_a_running_calls_page_leads_to_its_record_once_it_has_ended(as_: Any, page: Any, acme: Any) -> None:
    before, news = page("runningcall", "change", acme.runningcall), acme.runningcall.pk
    call = settle(acme.runningcall)
    client = as_("admin")
    assert client.get(before)["Location"] == page("call", "change", call)
    response = client.get(reverse("admin:tools_app_runningcall_news", args=[news]))
    assert response.json() == {"ended": page("call", "change", call)}
    cancelled = client.post(reverse("admin:tools_app_runningcall_cancel", args=[news]))
    assert cancelled["Location"] == page("call", "change", call)
    assert as_("stranger").get(before).status_code == 404


def test_the_page_of_a_record_leads_to_the_call_while_it_runs(as_: Any, page: Any, acme: Any) -> None:
    address = reverse("admin:tools_app_call_change", args=[acme.runningcall.pk])
    assert as_("auditor").get(address)["Location"] == page("runningcall", "change", acme.runningcall)
    assert as_("stranger").get(address).status_code == 404


def test_news_hold_what_was_said_since(as_: Any, acme: Any) -> None:
    for number in (1, 2, 3):
        CallEvent.objects.create(
            call_id=acme.runningcall.pk, sequence=number, kind="progress", data=f'{{"progress": {number}, "total": 4}}'
        )
    address = reverse("admin:tools_app_runningcall_news", args=[acme.runningcall.pk])
    news = as_("auditor").get(address, {"after": "1"}).json()
    assert [(event["sequence"], event["percent"]) for event in news["events"]] == [(2, 50), (3, 75)]
    assert news["status"] == "Running"
    for nonsense in ("", "-1", "x", "9" * 40, "²"):
        assert len(as_("auditor").get(address, {"after": nonsense}).json()["events"]) == 3


# --- What is shown --------------------------------------------------------------------------------------------


def test_events_stand_on_a_time_line_since_the_start(as_: Any, page: Any, acme: Any) -> None:
    CallEvent.objects.filter(call=acme.call).update(at=NOON.replace(second=3, microsecond=250_000))
    assert "+3.250 s" in shown(as_("auditor"), page, acme.call)


def test_progress_is_a_bar_where_its_total_is_known(as_: Any, page: Any, acme: Any) -> None:
    CallEvent.objects.filter(call=acme.call).update(data='{"progress": 5, "total": 20}')
    assert 'value="25"' in shown(as_("auditor"), page, acme.call)


@pytest.mark.parametrize("total", [0, True, "x", None, -3])
def test_progress_of_a_senseless_total_is_told_without_a_bar(total: Any) -> None:
    event = CallEvent(sequence=1, at=NOON, kind="progress", data=json.dumps({"progress": 5, "total": total}))
    description = row_of(event, NOON).description
    assert (description.title, description.percent) == (f"5 of {total}", None)


def test_the_sealed_copy_of_a_question_is_not_shown(as_: Any, page: Any, acme: Any) -> None:
    data = {"name": "q", "shown": {"method": "elicitation/create", "params": {"message": "City?"}}, "sealed": "c2VhbA"}
    CallEvent.objects.filter(call=acme.call).update(kind="request", data=json.dumps(data))
    client = as_("auditor")
    for text in (shown(client, page, acme.call), client.get(download(acme.call, "events")).content.decode()):
        assert "City?" in text
        assert "c2VhbA" not in text


def test_the_time_of_a_call_is_split(as_: Any, page: Any, acme: Any) -> None:
    Call.objects.filter(pk=acme.call.pk).update(duration_us=5_000_000, waited_us=1_250_000, recorded_us=2_000)
    text = shown(as_("auditor"), page, acme.call)
    for part in ("1.2 s", "3.8 s", "2.0 ms"):
        assert part in text


def test_large_payloads_are_cut_on_the_page_and_whole_in_the_file(
    as_: Any, page: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "MAX_SHOWN", 50)
    whole = json.dumps({"text": "a" * 100 + "the-end"})
    CallPayload.objects.filter(call=acme.call).update(result=whole)
    CallEvent.objects.filter(call=acme.call).update(kind="log", data=json.dumps({"data": "b" * MAX_TEXT + "its-end"}))
    client = as_("auditor")
    text = shown(client, page, acme.call)
    assert "the-end" not in text
    assert "its-end" not in text
    assert "Showing the first 50 of" in text
    response = client.get(download(acme.call, "result"))
    assert response.content.decode() == whole
    assert response["Content-Disposition"].startswith("attachment")
    assert response["X-Content-Type-Options"] == "nosniff"
    events = [json.loads(line) for line in client.get(download(acme.call, "events")).content.splitlines()]
    assert [event["data"]["data"][-7:] for event in events] == ["its-end"]


def test_events_with_long_numbers_are_shown_and_downloaded(as_: Any, page: Any, acme: Any) -> None:
    number = "12345678901234567890123"
    CallEvent.objects.filter(call=acme.call).update(kind="log", data=f'{{"level": "info", "data": {number}}}')
    client = as_("auditor")
    assert number in shown(client, page, acme.call)
    assert number in client.get(download(acme.call, "events")).content.decode()


def test_a_file_of_events_is_bounded(as_: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_BYTES", 300)
    for number in range(2, 9):
        CallEvent.objects.create(call=acme.call, sequence=number, kind="log", data='{"data": "words"}')
    content = as_("auditor").get(download(acme.call, "events")).content
    assert 0 < len(content) <= 300


def test_what_was_cut_off_when_it_was_recorded_says_so(as_: Any, page: Any, acme: Any) -> None:
    CallPayload.objects.filter(call=acme.call).update(result='{"truncated":true,"size":99999,"head":"{\\"begin"}')
    text = shown(as_("auditor"), page, acme.call)
    assert "{&quot;begin" in text
    assert "the original had 99999 bytes" in text


def test_a_part_that_is_not_there_is_no_file(as_: Any, acme: Any) -> None:
    CallPayload.objects.filter(call=acme.call).delete()
    client = as_("auditor")
    assert [client.get(download(acme.call, part)).status_code for part in ("nonsense", "arguments")] == [404, 404]


def test_the_revision_that_ran_is_compared_with_todays(as_: Any, page: Any, acme: Any) -> None:
    tool = acme.tool
    authoring.save_tool(tool)
    Call.objects.filter(pk=acme.call.pk).update(tool_revision=tool.revision)
    client = as_("auditor")
    text = shown(client, page, acme.call)
    assert "Unchanged" in text
    assert source_of(Call.objects.get(pk=acme.call.pk)) in text
    tool.description = "Finds other things."
    authoring.save_tool(tool)
    text = shown(client, page, acme.call)
    for line in ("Finds things.", "Finds other things."):
        assert f"&quot;description&quot;: &quot;{line}&quot;" in text
    ToolRevision.objects.filter(number=1).delete()
    assert "no longer stored" in shown(client, page, acme.call)
    tool.delete()
    assert "were deleted" in shown(client, page, acme.call)


def test_the_page_leads_to_what_the_call_belongs_to(as_: Any, page: Any, acme: Any) -> None:
    Call.objects.filter(pk=acme.call.pk).update(trace_id="a" * 32, chain_position=7)
    text = shown(as_("auditor"), page, acme.call)
    calls = page("call", "changelist")
    for address in (
        f"{calls}?session={acme.session.pk}",
        f"{calls}?trace={'a' * 32}",
        f"{reverse('admin:evidence')}?tenant={acme.tenant.pk}",
    ):
        assert f'href="{address}"' in text


@pytest.mark.parametrize("row", ["call", "runningcall", "session"])
def test_a_page_asks_the_database_a_few_times(as_: Any, page: Any, acme: Any, row: str) -> None:
    authoring.save_tool(acme.tool)
    Call.objects.filter(pk=acme.call.pk).update(tool_revision=7)
    client = as_("auditor")
    with CaptureQueriesContext(connection) as queries:
        assert client.get(page(row, "change", acme.row(row))).status_code == 200
    statements = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(statements) <= MAX_QUERIES, "\n".join(statements)
