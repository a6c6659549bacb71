"""What a process owns and does not run is settled, and what the broker cannot hear is settled all the same."""

import pytest
from django.utils import timezone
from kombu.exceptions import OperationalError
from pytest_django import Settings

from tools_app.audit.identity import process_id
from tools_app.execution import doubts, local, queue
from tools_app.execution.local import LocalCall
from tools_app.execution.sweeper import Sweeper
from tools_app.models import Call, CallStatus, Outcome, RunningCall, Tenant
from tools_app.models.ids import new_id

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def at_once(settings: Settings) -> None:
    """What is seen once has stood still for long."""
    settings.MCPHUB_LOST_SECONDS = -1.0


def running(tenant: Tenant, **more: object) -> RunningCall:
    """A call of this process that stands as running."""
    columns = {
        "status": CallStatus.RUNNING,
        "background": False,
        "owner": process_id(),
        "timeout_seconds": 60.0,
        **more,
    }
    return RunningCall.objects.create(tenant=tenant, tool_name="change", started_at=timezone.now(), **columns)


def test_a_call_that_this_process_could_not_record_the_end_of_is_settled_as_lost(tenant: Tenant) -> None:
    row = running(tenant)
    Sweeper().sweep()
    assert list(Call.objects.values_list("pk", "outcome")) == [(row.pk, Outcome.LOST)]
    assert not RunningCall.objects.exists()


def test_a_call_that_runs_here_goes_on(tenant: Tenant) -> None:
    row = running(tenant)
    call = LocalCall(row.pk, None, "1", 60.0)
    local.add(call)
    try:
        Sweeper().sweep()
    finally:
        local.remove(call)
    assert RunningCall.objects.filter(pk=row.pk).exists()


def test_a_call_is_settled_though_the_broker_is_away(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_call_id: object) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(queue, "revoke", away)
    running(tenant, background=True)
    Sweeper().sweep()
    assert Call.objects.get().outcome == Outcome.LOST


def test_a_call_whose_client_was_told_that_nothing_ran_does_not_run(tenant: Tenant) -> None:
    row = running(tenant, status=CallStatus.QUEUED, background=True)
    doubts.note(row.pk)
    Sweeper().sweep()
    assert Call.objects.get().outcome == Outcome.LOST
    assert not RunningCall.objects.exists()


def test_a_doubt_is_forgotten_when_the_database_could_be_asked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    doubts.note(new_id())
    Sweeper().sweep()
    assert doubts.noted()
    monkeypatch.setattr(doubts, "KEEP_SECONDS", -1.0)
    Sweeper().sweep()
    assert not doubts.noted()
