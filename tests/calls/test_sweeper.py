"""The sweeper settles calls that their process does not run, also if the broker is unavailable."""

import asyncio

import pytest
from django.utils import timezone
from pytest_django import Settings

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import process_id
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import run, uncertain
from tools_app.calls.background import queue
from tools_app.calls.background.broker import BrokerUnavailable
from tools_app.calls.run import Deadline, LocalCall
from tools_app.calls.sweeper import Sweeper
from tools_app.core.ids import new_id
from tools_app.models import Call, CallStatus, Outcome, RunningCall, Tenant

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def at_once(settings: Settings) -> None:
    """Settle calls when they are seen once."""
    settings.MCPHUB_PROCESS_TIMEOUT = -1.0


def running(tenant: Tenant, **more: object) -> RunningCall:
    """Create a call of this process with the status "running"."""
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

    async def begin() -> LocalCall:
        return LocalCall(id=row.pk, session_id=None, request_id="1", deadline=Deadline(60.0))

    call = asyncio.run(begin())
    run.running_calls[call.id] = call
    try:
        Sweeper().sweep()
    finally:
        del run.running_calls[call.id]
    assert RunningCall.objects.filter(pk=row.pk).exists()


def test_a_call_is_settled_though_the_broker_is_away(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_call_id: object) -> None:
        raise BrokerUnavailable("away")

    monkeypatch.setattr(queue, "end_process_of", away)
    running(tenant, background=True)
    Sweeper().sweep()
    assert Call.objects.get().outcome == Outcome.LOST


def test_a_call_whose_client_was_told_that_nothing_ran_does_not_run(tenant: Tenant) -> None:
    row = running(tenant, status=CallStatus.QUEUED, background=True)
    uncertain.not_started.note(row.pk)
    Sweeper().sweep()
    assert Call.objects.get().outcome == Outcome.NOT_STARTED
    assert not RunningCall.objects.exists()


def test_a_doubt_is_forgotten_when_the_database_could_be_asked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncertain, "KEEP_SECONDS", -1.0)
    uncertain.not_started.note(new_id())
    uncertain.may_have_run.note(new_id())
    Sweeper().sweep()
    assert not uncertain.not_started.noted() | uncertain.may_have_run.noted()


def test_a_task_that_no_client_was_told_of_ends_with_its_process_and_another_one_waits_on(tenant: Tenant) -> None:
    known_to_client = running(tenant, status=CallStatus.QUEUED, background=True, owner=new_id(), task_seconds=60.0)
    unknown_to_client = running(tenant, status=CallStatus.QUEUED, background=True, owner=new_id(), task_seconds=60.0)
    RunningCall.objects.filter(pk=unknown_to_client.pk).update(changed_at=unknown_to_client.started_at)
    sweeper = Sweeper()
    sweeper.sweep()
    sweeper.sweep()
    assert list(Call.objects.values_list("pk", "outcome")) == [(unknown_to_client.pk, Outcome.NOT_STARTED)]
    assert list(RunningCall.objects.values_list("pk", flat=True)) == [known_to_client.pk]


@pytest.mark.parametrize("owned_here", [True, False])
def test_a_cancelled_call_that_was_withheld_and_not_settled_is_cancelled_and_not_lost(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, owned_here: bool
) -> None:
    def gone(*_args: object) -> bool:
        raise RecorderUnavailable

    row = running(tenant, background=True, cancel_requested=True, status=CallStatus.QUEUED)
    with monkeypatch.context() as away:
        away.setattr(type(recorder.current()), "record", gone)
        with pytest.raises(RecorderUnavailable):
            Sweeper().sweep()
    assert RunningCall.objects.get(pk=row.pk).status == CallStatus.RUNNING
    if not owned_here:
        RunningCall.objects.update(owner=new_id())
    sweeper = Sweeper()
    sweeper.sweep()
    sweeper.sweep()
    assert list(Call.objects.values_list("pk", "outcome")) == [(row.pk, Outcome.CANCELLED)]
