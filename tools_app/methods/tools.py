"""`tools/list` and `tools/call`."""

from typing import Any, Final

from tools_app.calls import pipeline
from tools_app.calls.background.start_task import TaskCreated, TaskRequest
from tools_app.calls.request import RequestContext
from tools_app.catalog.validation.reserved import RESERVED
from tools_app.core.config import config
from tools_app.methods import paging, search_tools
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.methods.tasks import create_task_result, declares_tasks
from tools_app.methods.tool_definitions import described
from tools_app.protocol import exact_json
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import text_in
from tools_app.protocol.versions import Era, has_tasks

MAX_WISH_MS: Final = 10**15


@method("tools/list", *BOTH_ERAS)
async def list_tools(context: RequestContext) -> bytes:
    """List the tenant's tools by name, page by page (tools, §Listing Tools). Raises RpcError for a bad cursor."""
    return await paging.page(TOOLS, context)


@method("tools/call", *BOTH_ERAS)
async def call(context: RequestContext) -> bytes:
    """Run a tool (tools, §Calling Tools). Raises RpcError, and Cancelled if the client cancelled the request."""
    name, hub_tool = text_in(context.params, "name"), None
    if name in RESERVED:
        context, hub_tool = await search_tools.resolve(context, name)
        name = context.params["name"]
    arguments = context.params.get("arguments")
    if not isinstance(arguments, dict | None):
        raise RpcError(INVALID_PARAMS, "params.arguments must be an object.", {"field": "arguments"})
    task_request, task_seconds = task_request_of(context)
    result = await pipeline.call_tool(
        context, name, arguments or {}, task_request=task_request, task_seconds=task_seconds, hub_tool=hub_tool
    )
    return await create_task_result(context, result) if isinstance(result, TaskCreated) else result


def task_request_of(context: RequestContext) -> tuple[TaskRequest, float]:
    """Return whether a `tools/call` may become a task, and for how many seconds the task would be kept.

    A call becomes no task if its key may not retrieve one. Raises RpcError for an invalid `task`.
    """
    principal = context.principal
    if context.era is Era.MODERN:
        knows = context.capabilities and declares_tasks(context.capabilities)
        offered = knows and principal.permits_method("tasks/get")
        return TaskRequest.ACCEPTED if offered else TaskRequest.NO_EXTENSION, float(config.MCPHUB_MAX_TASK_TTL)
    if not has_tasks(context.version):
        return TaskRequest.UNSUPPORTED, float(config.MCPHUB_MAX_TASK_TTL)
    seconds = _lifetime(context.params.get("task"))
    if not (principal.permits_method("tasks/get") and principal.permits_method("tasks/result")):
        return TaskRequest.UNSUPPORTED, seconds
    return TaskRequest.REQUESTED if context.params.get("task") is not None else TaskRequest.NOT_REQUESTED, seconds


def _lifetime(task: Any) -> float:
    """Return the requested lifetime of a task in seconds, at most MCPHUB_MAX_TASK_TTL. Raises RpcError."""
    if task is None:
        return float(config.MCPHUB_MAX_TASK_TTL)
    ttl = task.get("ttl") if isinstance(task, dict) else False
    if ttl is None:
        return float(config.MCPHUB_MAX_TASK_TTL)
    milliseconds = exact_json.number(ttl)
    if milliseconds is None or not 0 < milliseconds < MAX_WISH_MS:
        message = "params.task must be an object, and its ttl a number of milliseconds."
        raise RpcError(INVALID_PARAMS, message, {"field": "task"})
    return min(milliseconds / 1000, float(config.MCPHUB_MAX_TASK_TTL))


TOOLS = paging.ListKind("tools/list", "tools", described, search_tools.search_tool_definitions)
