"""`tools/list` and `tools/call`."""

from collections.abc import Mapping
from typing import Any

from tools_app.execution.catalog import CompiledTool
from tools_app.execution.dispatch import Ways, call_tool
from tools_app.execution.tasking import TaskBegun
from tools_app.methods import pages
from tools_app.methods.exchange import Exchange
from tools_app.methods.invoking import answer_of, hearing_of, invocation_of, sayer, text_in
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.methods.tasks import created, lifetime_of, wish_of
from tools_app.models import TaskSupport
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.versions import has_annotations, has_icons, has_structured_content, has_tasks, is_modern


@method("tools/list", *BOTH_ERAS)
async def list_tools(exchange: Exchange) -> bytes:
    """The tenant's tools by name, a page at a time (tools, §Listing Tools). Raises RpcError for a bad cursor."""
    return await pages.page(TOOLS, exchange)


@method("tools/call", *BOTH_ERAS)
async def call(exchange: Exchange) -> bytes:
    """Run a tool (tools, §Calling Tools). Raises RpcError, and Cancelled when nobody waits for the answer."""
    name, arguments = text_in(exchange.params, "name"), exchange.params.get("arguments")
    if not isinstance(arguments, dict | None):
        raise RpcError(INVALID_PARAMS, "params.arguments must be an object.", {"field": "arguments"})
    invocation = invocation_of(exchange, name, arguments or {})
    say = sayer(exchange, hearing_of(exchange, invocation))
    ways = Ways(say, exchange.switchboard, exchange.sender.may_return, wish_of(exchange), lifetime_of(exchange))
    ended = await call_tool(invocation, exchange.era, ways)
    return await created(exchange, ended.call_id) if isinstance(ended, TaskBegun) else answer_of(ended, exchange)


def described(tool: CompiledTool, version: str) -> dict[str, Any]:
    """A tool as the revision knows it (tools, §Tool)."""
    definition = tool.definition
    body: dict[str, Any] = {"name": definition.name}
    if definition.title and has_structured_content(version):
        body["title"] = definition.title
    body["description"] = definition.description
    body["inputSchema"] = definition.input_schema or {"type": "object"}
    if definition.output_schema and _knows_output(definition.output_schema, version):
        body["outputSchema"] = definition.output_schema
    if definition.annotations and has_annotations(version):
        body["annotations"] = definition.annotations
    if definition.icons and has_icons(version):
        body["icons"] = definition.icons
    if tool.task != TaskSupport.NEVER and has_tasks(version):
        body["execution"] = {"taskSupport": tool.task.value}
    return body


def _knows_output(schema: Mapping[str, Any], version: str) -> bool:
    """Whether a revision has such an output schema: up to 2025-11-25 it describes an object."""
    return has_structured_content(version) and (is_modern(version) or schema.get("type") == "object")


TOOLS = pages.Listing("tools/list", "tools", described, lambda found: found.tools)
