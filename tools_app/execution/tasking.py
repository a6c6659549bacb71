"""Which call becomes a task: what its tool says, what its client knows, and how long it takes."""

import asyncio
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from tools_app.audit import recorder
from tools_app.auth.principal import Principal
from tools_app.events.switchboard import Switchboard
from tools_app.execution import background, detached, turnstile
from tools_app.execution.background import PutAside
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.inline import Say
from tools_app.execution.invocation import Invocation, Ledger, call_topic, ledger_of_row
from tools_app.execution.results import InputRequired
from tools_app.execution.run import Ran, ran
from tools_app.execution.worker import brought_to
from tools_app.models import CallAnswer, Outcome, RunningCall, TaskSupport
from tools_app.models.bridge import in_store
from tools_app.models.config import config
from tools_app.protocol.errors import CAPABILITY_MISSING, METHOD_NOT_FOUND, OVER_LIMIT, RpcError

# Tasks that a caller may have going on at once.
MOST_TASKS = 1000


class TaskWish(Enum):
    """What a client says of tasks: nothing, in a revision without them, or whether it takes or wants one."""

    UNHEARD_OF = "a revision before 2025-11-25"
    UNASKED = "2025-11-25, an ordinary request"
    ASKED = "2025-11-25, a request for a task"
    UNKNOWN = "the modern era, without the extension"
    OFFERED = "the modern era, with the extension"


class TaskBegun(msgspec.Struct, frozen=True):
    """A call that became a task: it goes on, and its client comes back for the result."""

    call_id: UUID


def refusal_of(tool: CompiledTool, wish: TaskWish) -> RpcError | None:
    """Why a call cannot be as its client wishes (2025-11-25, tasks, §Tool-Level Negotiation; SEP-2663)."""
    if wish is TaskWish.UNKNOWN and tool.task == TaskSupport.REQUIRED:
        message = f"'{tool.name}' answers with a task only: this needs a client that declares the tasks extension."
        return RpcError(CAPABILITY_MISSING, message, {"requiredCapabilities": task_capabilities()})
    if wish is TaskWish.UNASKED and tool.task == TaskSupport.REQUIRED:
        return RpcError(METHOD_NOT_FOUND, f"'{tool.name}' runs as a task only: ask for one with params.task.")
    if wish is TaskWish.ASKED and tool.task == TaskSupport.NEVER:
        return RpcError(METHOD_NOT_FOUND, f"'{tool.name}' never runs as a task: call it without params.task.")
    return None


def may_be_task(tool: CompiledTool, wish: TaskWish) -> bool:
    """Whether a call that is not refused could become a task."""
    return wish is TaskWish.ASKED or (wish is TaskWish.OFFERED and tool.task != TaskSupport.NEVER)


async def one_too_many(principal: Principal) -> RpcError | None:
    """Why a caller gets no further task (2025-11-25, tasks, §Resource Management)."""
    going_on = await in_store(_count, principal)
    if going_on < MOST_TASKS:
        return None
    return RpcError(OVER_LIMIT, f"At most {MOST_TASKS} tasks at once.", {"limit": "tasks", "most": MOST_TASKS})


def _count(principal: Principal) -> int:
    rows = RunningCall.objects.filter(tenant_id=principal.tenant_id, api_key_id=principal.key_id)
    if principal.key_id is None:
        rows = rows.filter(remote_address=principal.address)
    return rows.exclude(task_seconds=None).count()


def task_capabilities() -> dict[str, Any]:
    """What a client declares that knows tasks."""
    return {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def run_as_task(
    invocation: Invocation, tool: CompiledTool, ledger: Ledger, say: Say, switchboard: Switchboard
) -> Ran | TaskBegun:
    """Let a call run from its row: a task from the start, or one that becomes a task if it takes long.

    Raises RecorderGone or RpcError if it could not begin.
    """
    call_id = ledger.facts.id
    with switchboard.watching(call_topic(call_id)) as watch:
        await detached.begin(invocation, tool, ledger)
        turnstile.step_aside()
        if invocation.session is not None or tool.task == TaskSupport.REQUIRED:
            return TaskBegun(call_id)
        try:
            async with asyncio.timeout(config.MCPHUB_TASK_AFTER_SECONDS):
                ended = await background.heard(call_id, tool.name, say, watch)
        except TimeoutError:
            return TaskBegun(call_id)
        except asyncio.CancelledError:
            await asyncio.shield(background.request_cancel([call_id]))
            raise
    if isinstance(ended, PutAside):
        return await _asked(call_id)
    # Answered directly, it never was a task.
    await in_store(CallAnswer.objects.filter(pk=call_id).delete)
    return ended


async def _asked(call_id: UUID) -> Ran | TaskBegun:
    """What a call asks before it is a task goes out as the questions of any other call, and ends it."""
    row = await in_store(RunningCall.objects.filter(pk=call_id).first)
    if row is None or not row.is_put_aside:
        return TaskBegun(call_id)
    brought = brought_to(row)
    requests = {one["name"]: one["request"] for one in row.asked.values()}
    finished = ran(Outcome.INPUT_REQUIRED, InputRequired(requests, brought.round.answers, brought.round.state))
    ledger = ledger_of_row(row, said=await in_store(row.said))
    settled = await recorder.current().recording(ledger.ending(finished.end()))
    return finished if settled else TaskBegun(call_id)
