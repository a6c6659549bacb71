"""`tools/list` and `tools/call`."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import orjson
from django.core import signing

from tools_app.events.store import Event
from tools_app.execution import catalog
from tools_app.execution.catalog import Catalog, CompiledTool
from tools_app.execution.dispatch import call_tool
from tools_app.execution.invocation import Invocation
from tools_app.execution.run import Ran, as_json
from tools_app.methods.exchange import Cancelled, Exchange
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.methods.results import cacheable, complete
from tools_app.models import Outcome
from tools_app.models.config import config
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import progress_token
from tools_app.protocol.jsonrpc import id_json, notification_message
from tools_app.protocol.versions import Era, has_annotations, has_structured_content

CURSOR_SALT = "tools/list"
RENDERED_PAGES = 1024


@method("tools/list", *BOTH_ERAS)
async def list_tools(exchange: Exchange) -> bytes:
    """The tenant's tools by name, a page at a time (tools, §Listing Tools). Raises RpcError for a bad cursor."""
    after = _opened_cursor(exchange.params.get("cursor"))
    found = await catalog.ring.get(exchange.principal.tenant_id)
    if found is None:
        return cacheable({"tools": []}, exchange.era)
    return _page(_Rendering(found, exchange.version, exchange.era, config.MCPHUB_PAGE_SIZE), after)


class _Rendering:
    """What a page of tools depends on. Equal renderings give equal bytes, so each is made once."""

    def __init__(self, source: Catalog, version: str, era: Era, size: int) -> None:
        self.source = source
        self.version = version
        self.era = era
        self.size = size
        self._key = (source.tenant_id, source.version, version, size)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rendering) and self._key == other._key


@lru_cache(maxsize=RENDERED_PAGES)
def _page(rendering: _Rendering, after: str) -> bytes:
    following = [tool for name, tool in rendering.source.tools.items() if name > after]
    shown = following[: rendering.size]
    result: dict[str, Any] = {"tools": [_described(tool, rendering.version) for tool in shown]}
    if len(following) > len(shown):
        result["nextCursor"] = signing.dumps(shown[-1].name, salt=CURSOR_SALT)
    return cacheable(result, rendering.era)


def _opened_cursor(cursor: object) -> str:
    """The name after which the page begins. A cursor is signed: it says where to go on, and nothing else."""
    if cursor is None:
        return ""
    try:
        return str(signing.loads(cursor, salt=CURSOR_SALT)) if isinstance(cursor, str) else _refuse_cursor()
    except signing.BadSignature:
        return _refuse_cursor()


def _refuse_cursor() -> str:
    raise RpcError(INVALID_PARAMS, "params.cursor is not one that this hub gave.")


def _described(tool: CompiledTool, version: str) -> dict[str, Any]:
    """A tool as the revision knows it (tools, §Tool)."""
    definition = tool.definition
    body: dict[str, Any] = {"name": definition.name}
    if definition.title and has_structured_content(version):
        body["title"] = definition.title
    body["description"] = definition.description
    body["inputSchema"] = definition.input_schema or {"type": "object"}
    if definition.output_schema and has_structured_content(version):
        body["outputSchema"] = definition.output_schema
    if definition.annotations and has_annotations(version):
        body["annotations"] = definition.annotations
    return body


@method("tools/call", *BOTH_ERAS)
async def call(exchange: Exchange) -> bytes:
    """Run a tool (tools, §Calling Tools). Raises RpcError, and Cancelled when nobody waits for the answer."""
    invocation = _invocation(exchange)
    ran = await call_tool(invocation, exchange.era, _sayer(exchange), exchange.switchboard)
    if ran.outcome == Outcome.CANCELLED:
        raise Cancelled
    return complete(_fitting(ran, exchange.version), exchange.era)


def _invocation(exchange: Exchange) -> Invocation:
    params = exchange.params
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise RpcError(INVALID_PARAMS, "params.name must be a string.", {"field": "name"})
    if not isinstance(arguments, dict | None):
        raise RpcError(INVALID_PARAMS, "params.arguments must be an object.", {"field": "arguments"})
    return Invocation(
        principal=exchange.principal,
        session=exchange.session,
        client=exchange.client,
        version=exchange.version,
        request_id=id_json(exchange.request.id).decode(),
        tool_name=name,
        arguments=arguments or {},
    )


def _sayer(exchange: Exchange) -> Any:
    token = progress_token(exchange.request)

    def say(event: Event) -> None:
        """Send an event to the client, if it asked to hear of such."""
        if event.kind == "progress" and token is not None:
            exchange.send(_progress(token, event.data, exchange.version))

    return say


def _progress(token: str | int, data: Mapping[str, Any], version: str) -> bytes:
    """A progress notification (progress, §Progress Flow); messages came with 2025-03-26."""
    params = {"progressToken": token, **data}
    if not has_annotations(version):
        params.pop("message", None)
    return notification_message("notifications/progress", params)


def _fitting(ran: Ran, version: str) -> bytes:
    """A result without what the revision does not know; up to 2025-11-25, structured content is an object."""
    structured = ran.result.structured
    if structured is None or version >= "2026-07-28":
        return ran.wire
    if has_structured_content(version) and isinstance(structured, dict):
        return ran.wire
    return orjson.dumps(as_json(msgspec.structs.replace(ran.result, structured=None)))
