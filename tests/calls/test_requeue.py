"""Calls that are queued in the database only are enqueued again, by the process that owns them."""

from uuid import UUID

import pytest
from django.utils import timezone
from pytest_django import Settings

from tools_app.audit.recorder.entries import process_id
from tools_app.calls.background import queue
from tools_app.calls.sweeper import Requeuer
from tools_app.core.ids import new_id
from tools_app.models import CallStatus, Process, RunningCall, Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def requeued(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> list[UUID]:
    """The calls that were enqueued. The queue stays empty, and every queued call is overdue at once."""
    settings.MCPHUB_PROCESS_TIMEOUT = -1.0
    enqueued: list[UUID] = []
    monkeypatch.setattr(queue, "length", lambda: 0)
    monkeypatch.setattr(queue, "enqueue", lambda call_id, _tenant_id: enqueued.append(call_id))
    return enqueued


def waiting(tenant: Tenant, **more: object) -> RunningCall:
    """A call that waits for a worker."""
    columns = {"status": CallStatus.QUEUED, "background": True, "owner": process_id(), "timeout_seconds": 5.0, **more}
    return RunningCall.objects.create(tenant=tenant, tool_name="toil", started_at=timezone.now(), **columns)


def test_a_call_that_no_worker_took_is_queued_anew(tenant: Tenant, requeued: list[UUID]) -> None:
    call = waiting(tenant)
    waiting(tenant, status=CallStatus.RUNNING)
    waiting(tenant, background=False)
    Requeuer().requeue_forgotten()
    assert requeued == [call.pk]


def test_a_call_that_has_just_been_queued_is_left_alone(
    tenant: Tenant, requeued: list[UUID], settings: Settings
) -> None:
    settings.MCPHUB_PROCESS_TIMEOUT = 60.0
    waiting(tenant)
    requeuer = Requeuer()
    requeuer.requeue_forgotten()
    requeuer.requeue_forgotten()
    assert requeued == []


def test_as_many_are_queued_anew_as_the_queue_lacks_the_oldest_first(
    tenant: Tenant, requeued: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "length", lambda: 1)
    calls = [waiting(tenant) for _ in range(3)]
    Requeuer().requeue_forgotten()
    assert requeued == [call.pk for call in calls[:2]]


def test_a_call_of_another_process_is_that_ones_affair(tenant: Tenant, requeued: list[UUID]) -> None:
    neighbour = Process.objects.create(kind="web", host="h", pid=1)
    waiting(tenant, owner=neighbour.pk)
    waiting(tenant, owner=neighbour.pk, task_seconds=60.0)
    Requeuer().requeue_forgotten()
    assert requeued == []


def test_a_task_of_a_process_that_is_gone_is_adopted_and_no_other_call(tenant: Tenant, requeued: list[UUID]) -> None:
    waiting(tenant, owner=new_id())
    task = waiting(tenant, owner=new_id(), task_seconds=60.0)
    Requeuer().requeue_forgotten()
    assert requeued == [task.pk]
    task.refresh_from_db()
    assert task.owner == process_id()


def test_a_task_that_no_client_was_told_of_is_not_adopted(tenant: Tenant, requeued: list[UUID]) -> None:
    """Its client may have got the error that nothing ran: only the dead process knew."""
    row = waiting(tenant, owner=new_id(), task_seconds=60.0)
    RunningCall.objects.filter(pk=row.pk).update(changed_at=row.started_at)
    Requeuer().requeue_forgotten()
    assert requeued == []
