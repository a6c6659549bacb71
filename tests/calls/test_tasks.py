"""Tasks as rows: their transitions, and what happens to them when processes die."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connection

from tools_app.audit.recorder import recorder
from tools_app.calls import run, sweeper
from tools_app.calls.background import claims, start_task, task_state, worker
from tools_app.calls.background.payload import payload_of_invocation
from tools_app.calls.background.start_task import TaskRequest, may_be_task, refusal_of
from tools_app.calls.background.task_state import CANCELLED, COMPLETED, FAILED, INPUT_REQUIRED, WORKING, TaskState
from tools_app.calls.invocation import Client, Invocation, new_record_builder
from tools_app.calls.sweeper import Sweeper
from tools_app.catalog.tool_api.elicitation import unused_name
from tools_app.core.database import THREADS, submit_to_db_thread
from tools_app.identity.principal import Principal
from tools_app.models import Call, CallStatus, Outcome, Process, RunningCall, TaskSupport, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import ToolContext, tool

WAIT_SECONDS = 30.0
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ANSWER = {"name": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.fixture(autouse=True)
def database(transactional_db: None) -> None:
    """Rows that the recorder's thread sees too."""


@pytest.fixture
def runs() -> list[str]:
    """The runs of the tools, by their names."""
    return []


@pytest.fixture
def principal(tenant: Tenant) -> Principal:
    return Principal(keys.issue(tenant, "tasks")[0].pk, tenant.pk, tenant.slug, ())


@pytest.fixture
def queue_task(
    registries: None, offer: Callable[..., object], runs: list[str], principal: Principal
) -> Callable[..., UUID]:
    """Put a task into the queue: `queue_task("asks", background=True)`."""

    @tool(task="required")
    def works() -> str:
        runs.append("works")
        return "worked"

    @tool(task="required")
    async def asks(context: ToolContext) -> str:
        runs.append("asks")
        return str((await context.elicit("Who?", FORM, key="name")).content["name"])

    offer("works", "asks")

    def queue(name: str, *, background: bool = True, seconds: float = 60.0) -> UUID:
        invocation = Invocation(
            principal=principal,
            session=None,
            client=Client("test", "1", "127.0.0.1"),
            version="2026-07-28",
            request_id="1",
            method="tools/call",
            name=name,
            arguments={},
            capabilities={"elicitation": {}},
        )
        builder = new_record_builder(invocation, task_seconds=seconds)
        builder.background = background
        sealed = payload_of_invocation(invocation).sealed(invocation.call_id)
        recorder.current().record(builder.started(CallStatus.QUEUED, 10.0, sealed))
        asyncio.run(start_task._become_task(invocation.call_id))
        return invocation.call_id

    return queue


@pytest.fixture
def state_of(principal: Principal) -> Callable[[UUID], TaskState]:
    def ask(id: UUID) -> TaskState:
        state = asyncio.run(task_state.find(id, principal))
        assert state is not None
        return state

    return ask


@pytest.fixture
def sweep(settings: Any) -> Callable[[], None]:
    """Sweep as if every stale row was older than the process timeout."""
    settings.MCPHUB_PROCESS_TIMEOUT = -1.0
    return Sweeper().sweep


def orphan() -> None:
    """Make a dead process the owner of the calls."""
    RunningCall.objects.update(owner=uuid4())


# --- Transitions ----------------------------------------------------------------------------------------------------


@pytest.mark.shows("tasks.transitions")
def test_a_task_goes_from_state_to_state_and_its_end_is_the_last(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState], principal: Principal, runs: list[str]
) -> None:
    task = queue_task("asks", background=False)
    assert state_of(task).status == WORKING
    worker.run_claimed(task)
    assert state_of(task).status == INPUT_REQUIRED
    asyncio.run(answered_and_run(task, principal))
    done = state_of(task)
    assert (done.status, runs) == (COMPLETED, ["asks", "asks"])
    asyncio.run(task_state.update(task, principal, ANSWER))
    worker.run_claimed(task)
    assert state_of(task) == done
    assert runs == ["asks", "asks"]


async def answered_and_run(task: UUID, principal: Principal) -> None:
    """Answer a task that runs in this process, and wait until it has run."""
    await task_state.update(task, principal, ANSWER)
    await has_run(task, principal)


async def has_run(task: UUID, principal: Principal) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (await task_state.find(task, principal)).status == WORKING:  # type: ignore[union-attr]  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("left", [asyncio.CancelledError, OperationalError], ids=["cancelled", "timed-out"])
def test_a_task_that_was_answered_goes_on_though_its_client_left_before_it_was_started(
    queue_task: Callable[..., UUID],
    state_of: Callable[[UUID], TaskState],
    principal: Principal,
    monkeypatch: pytest.MonkeyPatch,
    left: type[BaseException],
) -> None:
    task = queue_task("asks", background=False)
    worker.run_claimed(task)
    stored, opened, store = threading.Event(), threading.Event(), task_state._update

    def store_slowly(*arguments: Any) -> RunningCall | None:
        ready = store(*arguments)
        stored.set()
        assert opened.wait(WAIT_SECONDS)
        return ready

    async def leave() -> None:
        with monkeypatch.context() as patched:
            if left is OperationalError:
                patched.setattr(task_state, "MAX_SECONDS", 0.01)
            updating = asyncio.create_task(task_state.update(task, principal, ANSWER))
            assert await asyncio.to_thread(stored.wait, WAIT_SECONDS)
            if left is asyncio.CancelledError:
                updating.cancel()
            with pytest.raises(left):
                await updating
        opened.set()
        await has_run(task, principal)

    monkeypatch.setattr(task_state, "_update", store_slowly)
    asyncio.run(leave())
    assert state_of(task).status == COMPLETED


ENDS = {Outcome.OK: COMPLETED, Outcome.CANCELLED: CANCELLED, Outcome.LOST: FAILED, Outcome.TIMEOUT: FAILED}


@pytest.mark.shows("tasks.transitions")
@pytest.mark.parametrize("first", [Outcome.CANCELLED, Outcome.LOST, Outcome.TIMEOUT])
def test_who_ends_a_task_first_says_how_and_later_ones_change_nothing(
    queue_task: Callable[..., UUID],
    state_of: Callable[[UUID], TaskState],
    principal: Principal,
    runs: list[str],
    first: Outcome,
) -> None:
    task = queue_task("works")
    row = RunningCall.objects.get()
    assert sweeper.settle(row, sweeper.End(first, is_error=True))
    ended = state_of(task)
    assert ended.status == ENDS[first]
    for later in ENDS:
        assert not sweeper.settle(row, sweeper.End(later))
    worker.run_claimed(task)
    asyncio.run(task_state.update(task, principal, ANSWER))
    assert (state_of(task).status, state_of(task).updated_at) == (ended.status, ended.updated_at)
    assert runs == []
    assert Call.objects.get().outcome == first


def test_a_queued_task_is_run_once_however_often_it_is_handed_out(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState], runs: list[str]
) -> None:
    task = queue_task("works")
    for _ in range(3):
        worker.run_claimed(task)
    assert (state_of(task).status, runs) == (COMPLETED, ["works"])


def test_the_end_of_a_run_that_was_settled_meanwhile_changes_nothing(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState]
) -> None:
    task = queue_task("asks")
    claim = claims.claim(task)
    assert isinstance(claim, claims.Claim)
    assert sweeper.settle(claim.row, sweeper.End(Outcome.CANCELLED, is_error=True))
    worker._settle(claim, asyncio.run(worker._run(claim)))
    assert state_of(task).status == CANCELLED
    assert not RunningCall.objects.exists()


def test_a_task_that_ends_while_tasks_are_listed_is_listed_once_as_ended(
    queue_task: Callable[..., UUID], principal: Principal
) -> None:
    task = queue_task("works")
    running = [RunningCall.objects.get()]

    def end_after_first_read(execute: Callable[..., Any], *statement: Any) -> Any:
        result = execute(*statement)
        if running:
            assert sweeper.settle(running.pop(), sweeper.End(Outcome.CANCELLED, is_error=True))
        return result

    with connection.execute_wrapper(end_after_first_read):
        listed = task_state._listed(principal, None, 10)
    assert [(state.id, state.status) for state in listed] == [(task, CANCELLED)]


def test_a_task_that_is_cancelled_as_its_tool_ends_keeps_its_result(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState], offer: Callable[..., object]
) -> None:
    """The cancellation arrives while the settlement waits for a thread of the busy pool."""
    free, started, ends = threading.Event(), asyncio.Event(), []

    @tool(task="required")
    async def waits() -> str:
        ends.append(asyncio.get_running_loop().create_future())
        started.set()
        return str(await ends[0])

    offer("waits")
    task = queue_task("waits", background=False)

    async def cancel_at_end() -> None:
        running = asyncio.create_task(worker.run_in_process(task))
        async with asyncio.timeout(WAIT_SECONDS):
            await started.wait()
            for _ in range(THREADS):
                submit_to_db_thread(lambda: free.wait(WAIT_SECONDS))
            ends[0].set_result("done")
            assert run.stop_call(task)
            asyncio.get_running_loop().call_soon(free.set)
            await running

    asyncio.run(cancel_at_end())
    assert state_of(task).status == COMPLETED


# --- Deaths -------------------------------------------------------------------------------------------------------


def test_a_background_task_in_the_queue_outlives_the_process_that_queued_it(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState], sweep: Callable[[], None], runs: list[str]
) -> None:
    task = queue_task("works", background=True)
    orphan()
    sweep()
    assert state_of(task).status == WORKING
    worker.run_claimed(task)
    assert (state_of(task).status, runs) == (COMPLETED, ["works"])


def test_a_task_is_promised_when_its_client_hears_of_it_and_not_before(
    queue_task: Callable[..., UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setattr(start_task, "run_in_db_thread", AsyncMock(side_effect=OperationalError))
        not_promised = queue_task("works")
    promised = queue_task("works")
    assert [RunningCall.objects.get(pk=task).is_promised for task in (not_promised, promised)] == [False, True]


def test_a_task_that_was_to_run_in_the_process_itself_does_not_start_when_that_dies(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState], sweep: Callable[[], None]
) -> None:
    task = queue_task("works", background=False)
    orphan()
    sweep()
    assert state_of(task).status == FAILED
    assert Call.objects.get().outcome == Outcome.NOT_STARTED


@pytest.mark.parametrize("known", [True, False], ids=["silent", "gone"])
def test_a_task_that_runs_is_lost_with_the_process_that_runs_it(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState], sweep: Callable[[], None], known: bool
) -> None:
    task = queue_task("works")
    orphan()
    RunningCall.objects.update(status=CallStatus.RUNNING)
    owner = RunningCall.objects.get().owner
    if known:
        Process.objects.create(id=owner, kind="worker", host="h", pid=1)
    sweep()
    assert state_of(task).status == FAILED
    assert "was lost" in state_of(task).message
    assert not Process.objects.filter(pk=owner).exists()


def test_a_task_that_waits_for_its_client_outlives_every_process(
    queue_task: Callable[..., UUID],
    state_of: Callable[[UUID], TaskState],
    sweep: Callable[[], None],
    principal: Principal,
) -> None:
    task = queue_task("asks", background=False)
    worker.run_claimed(task)
    orphan()
    sweep()
    assert state_of(task).status == INPUT_REQUIRED
    asyncio.run(answered_and_run(task, principal))
    assert state_of(task).status == COMPLETED


def test_a_task_whose_client_never_answers_ends_when_its_time_is_over(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState], sweep: Callable[[], None]
) -> None:
    task = queue_task("asks", seconds=-1.0)
    worker.run_claimed(task)
    sweep()
    assert state_of(task).status == FAILED
    assert Call.objects.get().outcome == Outcome.TIMEOUT


def test_a_task_that_was_cancelled_before_it_began_never_begins(
    queue_task: Callable[..., UUID], state_of: Callable[[UUID], TaskState], runs: list[str]
) -> None:
    task = queue_task("asks")
    RunningCall.objects.update(cancel_requested=True)
    worker.run_claimed(task)
    assert state_of(task).status == CANCELLED
    assert Call.objects.get().outcome == Outcome.CANCELLED


# --- Who gets a task ----------------------------------------------------------------------------------------------

REFUSALS = {
    (TaskSupport.REQUIRED, TaskRequest.NO_EXTENSION): -32021,
    (TaskSupport.REQUIRED, TaskRequest.NOT_REQUESTED): -32601,
    (TaskSupport.NEVER, TaskRequest.REQUESTED): -32601,
}
TASKS = {
    (TaskSupport.OPTIONAL, TaskRequest.REQUESTED),
    (TaskSupport.OPTIONAL, TaskRequest.ACCEPTED),
    (TaskSupport.REQUIRED, TaskRequest.REQUESTED),
    (TaskSupport.REQUIRED, TaskRequest.ACCEPTED),
}


@pytest.mark.shows("tasks-extension.undeclared", "tasks.undeclared")
@pytest.mark.parametrize("support", TaskSupport)
@pytest.mark.parametrize("task_request", TaskRequest)
def test_what_a_tool_says_and_what_a_client_says_decide_who_gets_a_task(
    support: TaskSupport, task_request: TaskRequest
) -> None:
    compiled = compiled_tool(support)
    refusal = refusal_of(compiled, task_request)
    assert (refusal.code if refusal else None) == REFUSALS.get((support, task_request))
    assert refusal or may_be_task(compiled, task_request) == ((support, task_request) in TASKS)


def compiled_tool(support: TaskSupport) -> Any:
    """A compiled tool with the fields that matter here."""
    return SimpleNamespace(name="t", task=support)


@pytest.mark.shows("tasks-extension.keys")
def test_a_key_that_was_used_is_never_used_again() -> None:
    used: list[str] = []
    for name in ("a-3", "a", "a", "a-2", "a", "a"):
        used.append(unused_name(name, used))
    assert len(set(used)) == len(used)
    assert used[:2] == ["a-3", "a"]
