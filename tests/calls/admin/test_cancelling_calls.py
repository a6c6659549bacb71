"""Cancelling several running calls at once from their list, and who may do it."""

from typing import Any

import pytest
from django.urls import reverse

from tests.worlds import person
from tools_app.calls import inputs
from tools_app.calls.admin import running
from tools_app.models import Change, Membership, Role, RunningCall

LIST = "admin:tools_app_runningcall_changelist"


def cancel(client: Any, *calls: RunningCall, **more: str) -> Any:
    chosen = {"action": "cancel_selected", "_selected_action": [str(call.pk) for call in calls], **more}
    return client.post(reverse(LIST), chosen, follow=True)


def cancelled() -> set[Any]:
    return set(RunningCall.objects.filter(cancel_requested=True).values_list("pk", flat=True))


def another(call: RunningCall) -> RunningCall:
    copied = RunningCall.objects.get(pk=call.pk)
    copied.pk, copied._state.adding = RunningCall._meta.pk.get_default(), True
    copied.save()
    return copied


@pytest.mark.parametrize("role", ["superuser", "admin"])
def test_calls_that_are_selected_are_cancelled_and_the_record_says_by_whom(as_: Any, acme: Any, role: str) -> None:
    calls = [acme.runningcall, another(acme.runningcall)]
    left = another(acme.runningcall)
    response = cancel(as_(role), *calls)
    assert "Asked to stop: 2." in response.content.decode()
    assert cancelled() == {call.pk for call in calls}
    assert left.pk not in cancelled()
    assert {inputs.reason_of(call.pk).cause for call in calls} == {f"cancelled by {role} (Admin pages)"}
    recorded = Change.objects.filter(kind="runningcall", object_id__in=[str(call.pk) for call in calls])
    assert set(recorded.values_list("person_name", "after")) == {(role, '{"cancel_requested":true}')}
    assert recorded.count() == 2


def test_who_runs_one_tenant_and_reads_another_cancels_the_calls_of_the_one(
    as_: Any, acme: Any, globex: Any, people: Any
) -> None:
    Membership.objects.create(user=people["admin"], tenant=globex.tenant, role=Role.AUDITOR)
    response = cancel(as_("admin"), acme.runningcall, globex.runningcall)
    assert cancelled() == {acme.runningcall.pk}
    assert "no admin of their tenants: 1" in response.content.decode()


@pytest.mark.parametrize("role", ["auditor", "operator", "stranger"])
def test_nobody_else_cancels_a_call(as_: Any, acme: Any, role: str) -> None:
    assert cancel(as_(role), acme.runningcall).status_code in {200, 403}
    assert cancelled() == set()


def test_a_foreign_call_is_not_found_by_selecting_everything(as_: Any, acme: Any, globex: Any) -> None:
    cancel(as_("admin"), acme.runningcall, globex.runningcall, select_across="1")
    assert cancelled() == {acme.runningcall.pk}


def test_no_more_are_cancelled_at_once_than_a_request_has_time_for(
    as_: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MAX_CANCELLED", 1)
    response = cancel(as_("admin"), acme.runningcall, another(acme.runningcall))
    assert len(cancelled()) == 1
    assert "At most 1 at once" in response.content.decode()


def test_who_only_reads_is_not_offered_to_cancel(as_: Any, acme: Any) -> None:
    person("reader", acme.tenant, Role.AUDITOR)
    assert b"cancel_selected" in as_("admin").get(reverse(LIST)).content
    assert b"cancel_selected" not in as_("auditor").get(reverse(LIST)).content
