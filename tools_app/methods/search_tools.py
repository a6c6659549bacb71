"""The tools that stand for a long list: `find_tools`, `describe_tool` and `call_tool`.

A call by `call_tool` is resolved here, before anything is checked or recorded: from then on it is a call of its target.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from tools_app.calls.request import RequestContext
from tools_app.catalog import compiled, presentation, search
from tools_app.catalog.compiled import Catalog, CompiledTool
from tools_app.catalog.kinds.base import ToolDefinition
from tools_app.catalog.presentation import TOOLS_LIST
from tools_app.catalog.search import MAX_QUERY_LENGTH, MAX_RESULTS
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import ToolResult, failed, text
from tools_app.catalog.validation.reserved import CALL, DESCRIBE, FIND
from tools_app.identity.principal import Principal
from tools_app.methods import permissions
from tools_app.methods.tool_definitions import described
from tools_app.models import BY_CALL_TOOL, TOOLS_CALL, TaskSupport
from tools_app.protocol import exact_json
from tools_app.protocol.schema import CompiledSchema
from tools_app.tenants.limits.quotas import UNLIMITED

DEFAULT_RESULTS: Final = 10
MAX_NAME_LENGTH: Final = 128
MAX_SUMMARY_LENGTH: Final = 200
TIMEOUT_SECONDS: Final = 30.0
NAME: Final = {"type": "string", "maxLength": MAX_NAME_LENGTH, "description": "The name of a tool, from find_tools."}
READ_ONLY: Final = {"readOnlyHint": True, "openWorldHint": False}


async def resolve(context: RequestContext, name: str) -> tuple[RequestContext, CompiledTool | None]:
    """Return the request and the tool of the hub for a `tools/call` of a reserved name.

    A call by `call_tool` becomes the request of its target, which no tool of the hub answers; nor does one of a caller
    whose tools are not searched. An invalid call of `call_tool` stays as it is, to be refused like that of any tool.
    Raises RpcError if the caller's key does not permit `tools/list`, which the tools that search stand for, or the
    caller's scopes not the call of a tenant's own tool of this name.
    """
    principal = context.principal
    found = await compiled.cache.get(principal.tenant_id)
    if found is None or not presentation.is_searched(found, principal):
        await permissions.check_for(context, TOOLS_CALL, ("tool", name))
        return context, None
    if name in (FIND, DESCRIBE):
        await permissions.check_for(context, TOOLS_LIST, None)
    tool, arguments = _TOOLS[name], context.params.get("arguments")
    if name == FIND:
        return context, replace(tool, run=lambda arguments, _context: _find(found, principal, arguments))
    if name == DESCRIBE:
        return context, replace(tool, run=lambda arguments, _context: _describe(found, context, arguments))
    if not tool.arguments.accepts(arguments if arguments is not None else {}):
        return context, tool
    assert isinstance(arguments, dict), "the schema requires a name"
    params = {**context.params, "name": arguments["name"], "arguments": arguments.get("arguments", {})}
    request = msgspec.structs.replace(context.request, method=BY_CALL_TOOL)
    # No header repeats the target's arguments.
    return msgspec.structs.replace(context, params=params, request=request, headers=None), None


def search_tool_definitions(found: Catalog, principal: Principal) -> Mapping[str, CompiledTool]:
    """Return the tools that the caller's list shows, by name, sorted."""
    names = presentation.view_of(found, principal).names
    tools = {name: tool for name, tool in found.tools.items() if name in names}
    if not presentation.is_searched(found, principal):
        return tools
    pinned = {name: tool for name, tool in tools.items() if tool.pinned}
    return dict(sorted({**pinned, **_TOOLS}.items()))


async def _find(found: Catalog, principal: Principal, arguments: dict[str, Any]) -> ToolResult:
    hits = await search.search(found, arguments["query"], presentation.view_of(found, principal).searchable)
    shown = [_summary(found.tools[hit.name], hit.score) for hit in hits[: arguments.get("limit", DEFAULT_RESULTS)]]
    return _text_result({"tools": shown, "total": len(hits)})


def _summary(tool: CompiledTool, score: float) -> dict[str, Any]:
    definition = tool.definition
    summary = " ".join((definition.description or "")[: 4 * MAX_SUMMARY_LENGTH].split())
    if len(summary) > MAX_SUMMARY_LENGTH:
        summary = f"{summary[: MAX_SUMMARY_LENGTH - 1].rstrip()}…"
    title = {"title": definition.title} if definition.title else {}
    return {"name": tool.name, **title, "summary": summary, "score": round(score, 3)}


async def _describe(found: Catalog, context: RequestContext, arguments: dict[str, Any]) -> ToolResult:
    name = arguments["name"]
    if name not in presentation.view_of(found, context.principal).searchable:
        return failed(f"There is no tool named '{name}'. Search with {FIND}.", "unknown tool")
    return _text_result(described(found.tools[name], context.version))


async def _refuse(arguments: dict[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG001 - a Runner
    raise AssertionError("a tool of the hub gets its function when it is called")


def _text_result(body: dict[str, Any]) -> ToolResult:
    return ToolResult([text(exact_json.dumps(body, default=exact_json.decimal_or_text).decode())], structured=body)


def _hub_tool(
    definition: ToolDefinition, *, read_only: bool = True, task: TaskSupport = TaskSupport.NEVER
) -> CompiledTool:
    return CompiledTool(
        id=None,
        name=definition.name,
        revision=0,
        read_only=read_only,
        definition=definition,
        arguments=CompiledSchema(definition.input_schema),
        output=None,
        run=_refuse,
        background=False,
        task=task,
        timeout_seconds=TIMEOUT_SECONDS,
        allowed=UNLIMITED,
        mirrored=(),
    )


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_QUERY: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_QUERY_LENGTH,
    "description": "What the tool should do, in a few words.",
}
_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": "At most this many results."}
_TOOLS: Final[Mapping[str, CompiledTool]] = {
    tool.name: tool
    for tool in (
        _hub_tool(
            ToolDefinition(
                CALL,
                "Call a tool",
                f"Call a tool that {FIND} found. Its arguments are those that {DESCRIBE} shows.",
                _object({"name": NAME, "arguments": {"type": "object", "description": "Its arguments."}}, "name"),
                None,
                {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
            ),
            read_only=False,
            task=TaskSupport.OPTIONAL,
        ),
        _hub_tool(
            ToolDefinition(
                DESCRIBE,
                "Describe a tool",
                "Get the full definition of a tool: what it does, and the schema of its arguments.",
                _object({"name": NAME}, "name"),
                None,
                READ_ONLY,
            )
        ),
        _hub_tool(
            ToolDefinition(
                FIND,
                "Find tools",
                "Search the tools of this server by words: their names, descriptions and arguments. Returns names,"
                f" summaries and scores, the best first. Then use {DESCRIBE} and {CALL}.",
                _object({"query": _QUERY, "limit": _LIMIT}, "query"),
                None,
                READ_ONLY,
            )
        ),
    )
}
