"""Sessions in the admin: the filter by state, and the links to their calls."""

from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse
from django.utils import timezone

from tests.pages import rows_of
from tools_app.models import Call, Change, RunningCall, Session


def test_a_session_leads_to_its_calls(as_: Any, page: Any, acme: Any) -> None:
    other = Session.objects.create(tenant=acme.tenant, digest=uuid4().hex, protocol_version="2025-11-25")
    client = as_("auditor")
    for session, calls in ((acme.session, [acme.call]), (other, [])):
        address = f"{page('call', 'changelist')}?session={session.pk}"
        assert f'href="{address}"' in client.get(page("session", "change", session)).content.decode()
        assert rows_of(client.get(address)) == calls
    assert Call.objects.exists()


@pytest.mark.parametrize(("state", "ended"), [("open", False), ("ended", True)])
def test_sessions_are_found_by_whether_they_ended(as_: Any, page: Any, acme: Any, state: str, ended: bool) -> None:
    Session.objects.create(
        tenant=acme.tenant, digest=uuid4().hex, protocol_version="2025-11-25", ended_at=timezone.now()
    )
    found = as_("auditor").get(page("session", "changelist"), {"state": state}).context["cl"].queryset
    assert [session.ended_at is not None for session in found] == [ended]


@pytest.mark.parametrize("model", ["call", "runningcall"])
def test_a_foreign_session_as_a_filter_finds_nothing(as_: Any, page: Any, acme: Any, globex: Any, model: str) -> None:
    assert RunningCall.objects.filter(session=globex.session).exists()
    response = as_("auditor").get(page(model, "changelist"), {"session": str(globex.session.pk)})
    assert rows_of(response) == []


@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", 302), ("admin", 302), ("auditor", 403), ("operator", 403), ("stranger", 404)],
)
def test_admins_end_sessions_and_that_is_recorded(as_: Any, page: Any, acme: Any, role: str, status: int) -> None:
    client, address = as_(role), reverse("admin:tools_app_session_end", args=[acme.session.pk])
    assert client.get(address).status_code in (403, 404)
    assert client.post(address).status_code == status
    acme.session.refresh_from_db()
    assert (acme.session.ended_at is not None) == (status == 302)
    recorded = Change.objects.filter(object_id=str(acme.session.pk)).values_list("person_name", "tenant")
    assert list(recorded) == ([(role, acme.tenant.pk)] if status == 302 else [])
    if status == 302:
        assert client.post(address).status_code == 302
        assert recorded.count() == 1
        assert "End the session" not in client.get(page("session", "change", acme.session)).content.decode()


def test_a_session_shows_its_client_and_its_recent_calls(as_: Any, page: Any, acme: Any) -> None:
    Session.objects.filter(pk=acme.session.pk).update(client_capabilities={"sampling": {"<b>": 1}})
    fields = {
        "tenant": acme.tenant,
        "finished_at": timezone.now(),
        "duration_us": 1,
        "outcome": "ok",
        "writer": uuid4(),
    }
    Call.objects.create(**fields, tool_name="of_this_one", session=acme.session)
    Call.objects.create(**fields, tool_name="of_another_one")
    text = as_("operator").get(page("session", "change", acme.session)).content.decode()
    for shown in ("&quot;sampling&quot;", "&lt;b&gt;", "of_this_one", "acme_find", "2025-11-25"):
        assert shown in text
    assert "of_another_one" not in text
    assert "End the session" not in text
