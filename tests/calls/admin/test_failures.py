"""The page of failures, and the panel of failures and their count in the list of calls."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tools_app.calls.admin import change_list
from tools_app.models import Call, CallPayload, Outcome


@pytest.fixture
def failed(acme: Any, globex: Any) -> Any:
    for world, cause in ((acme, "No row 17"), (acme, "No row 18"), (globex, "Globex is down")):
        now = timezone.now()
        call = Call.objects.create(
            tenant=world.tenant,
            tool_name=world.tool.name,
            outcome=Outcome.TOOL_ERROR,
            cause=cause,
            started_at=now,
            finished_at=now,
            duration_us=5,
            writer=uuid4(),
        )
        CallPayload.objects.create(call=call, arguments='{"term": "words"}', result="{}")
    return Call.objects.filter(tenant=acme.tenant, outcome=Outcome.TOOL_ERROR).latest("started_at")


def test_each_sees_the_failures_of_their_tenants(as_: Any, failed: Any) -> None:
    url = reverse("admin:failures")
    page = as_("admin").get(url)
    assert [row.group.count for row in page.context["rows"]] == [2]
    assert "No row 18" in page.content.decode()
    assert "Globex" not in page.content.decode()
    assert len(as_("superuser").get(url).context["rows"]) == 2
    assert len(as_("superuser").get(url, {"tenant": str(failed.tenant_id)}).context["rows"]) == 1
    hidden = as_("operator").get(url).content.decode()
    assert "No row" not in hidden
    assert "2</strong> calls" in hidden


def test_a_group_leads_to_its_calls_and_a_call_to_its_group(as_: Any, failed: Any) -> None:
    admin = as_("admin")
    (row,) = admin.get(reverse("admin:failures")).context["rows"]
    listed = admin.get(row.calls_url)
    assert {call.cause for call in listed.context["found"].calls} == {"No row 17", "No row 18"}
    page = admin.get(reverse("admin:tools_app_call_change", args=[failed.pk]))
    similar = page.context["similar"]
    assert similar.endswith(f"#group-{row.group.digest}")
    assert "Similar failures" in page.content.decode()
    assert [one.group.digest for one in admin.get(similar).context["rows"]] == [row.group.digest]


@pytest.mark.parametrize("query", ["period=1h", "period=x", "tenant=x", "sort=count", "sort=x", "tool=" + "x" * 500])
def test_any_choice_is_answered(as_: Any, failed: Any, query: str) -> None:
    assert as_("admin").get(f"{reverse('admin:failures')}?{query}").status_code == 200


def test_without_failures_the_page_says_so(as_: Any, acme: Any) -> None:
    assert "No call failed in this period" in as_("admin").get(reverse("admin:failures")).content.decode()


def test_the_panel_shows_what_the_page_shows(as_: Any, failed: Any) -> None:
    url = reverse("admin:tools_app_call_panel", args=[failed.pk])
    seen = as_("admin").get(url).content.decode()
    assert "No row 18" in seen
    assert "words" in seen
    assert "<html" not in seen
    hidden = as_("operator").get(url).content.decode()
    assert "No row 18" not in hidden
    assert "words" not in hidden
    assert as_("admin").get(reverse("admin:tools_app_call_panel", args=[uuid4()])).status_code == 404


def test_the_count_is_of_the_search_and_bounded(as_: Any, failed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = reverse("admin:tools_app_call_count")
    admin = as_("admin")
    assert admin.get(url, {"outcome": "tool_error"}).json() == {"text": "2 calls."}
    assert admin.get(url, {"text": "row"}).json() == {"text": ""}
    assert admin.get(url, {"since": "nonsense"}).status_code == 400
    monkeypatch.setattr(change_list, "MAX_COUNTED", 2)
    assert admin.get(url, {"outcome": "tool_error"}).json() == {"text": "2+ calls."}
    # Without an index, only some of the examined calls match.
    assert admin.get(url, {"client": "nobody"}).json() == {"text": ""}
    Call.objects.filter(pk=failed.pk).update(client_name="somebody")
    assert admin.get(url, {"client": "somebody"}).json() == {"text": "At least 1 call."}


def test_a_group_without_a_tool_leads_to_its_calls_by_their_method(as_: Any, failed: Any) -> None:
    Call.objects.filter(pk=failed.pk).update(tool_name="", method="resources/read")
    admin = as_("admin")
    rows = admin.get(reverse("admin:failures")).context["rows"]
    (row,) = [row for row in rows if row.group.name == "resources/read"]
    assert [call.pk for call in admin.get(row.calls_url).context["found"].calls] == [failed.pk]


def test_a_call_that_is_older_than_every_period_has_no_link(as_: Any, failed: Any) -> None:
    Call.objects.filter(pk=failed.pk).update(started_at=timezone.now() - timedelta(days=31))
    assert as_("admin").get(reverse("admin:tools_app_call_change", args=[failed.pk])).context["similar"] == ""


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL chooses by its statistics.")
@pytest.mark.parametrize(
    ("name", "query"), [("failures", {"period": "30d"}), ("live_tail_calls", {"outcome": Outcome.LOST.value})]
)
def test_failures_are_found_by_the_index_of_outcomes(as_: Any, acme: Any, name: str, query: Any) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert as_("admin").get(reverse(f"admin:{name}"), {**query, "tenant": str(acme.tenant.pk)}).status_code == 200
    statements = [one["sql"] for one in queries if "'lost'" in one["sql"] and 'FROM "tools_app_call"' in one["sql"]]
    assert statements
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statements[0]}".replace("%", "%%"))
        plan = " ".join(row[-1] for row in cursor.fetchall())
    assert "call_by_outcome" in plan
    assert "call_by_tenant" not in plan
