"""Sessions: found by whether they ended, and the way to what was called in them."""

from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from tools_app.models import Call, RunningCall, Session


def test_a_session_leads_to_its_calls(as_: Any, page: Any, acme: Any) -> None:
    other = Session.objects.create(tenant=acme.tenant, digest=uuid4().hex, protocol_version="2025-11-25")
    client = as_("auditor")
    for session, calls in ((acme.session, [acme.call]), (other, [])):
        address = f"{page('call', 'changelist')}?session={session.pk}"
        assert f'href="{address}"' in client.get(page("session", "change", session)).content.decode()
        assert list(client.get(address).context["cl"].queryset) == calls
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
    for asked in (str(globex.session.pk), "nonsense"):
        answer = as_("auditor").get(page(model, "changelist"), {"session": asked})
        assert list(answer.context["cl"].queryset) == []
