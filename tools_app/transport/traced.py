"""The span of a request, from the handler's first step to its result. Called only where traces are on."""

from typing import Any

import orjson

from tools_app.methods.exchange import Cancelled, Exchange
from tools_app.methods.registry import Handler
from tools_app.protocol.errors import RpcError
from tools_app.protocol.jsonrpc import id_json
from tools_app.telemetry import trace_context, tracing
from tools_app.telemetry.scrubbing import scrubbed

# The parameter that says what a method is about, and the attribute that holds it.
NAMED = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
FAILED = b'"isError":true'


async def answered(handler: Handler, exchange: Exchange) -> bytes:
    """What `handler` answers, in a span that goes on with the client's trace if it began one."""
    assert tracing.active is not None
    carrier = trace_context.carrier(exchange.params, exchange.carrier)
    with tracing.active.span("server", _name(exchange), _attributes(exchange), carrier) as span:
        try:
            result = await handler(exchange)
        except RpcError as problem:
            span.note("rpc.response.status_code", str(problem.code))
            span.fail(str(problem.code))
            raise
        except Cancelled:
            span.fail("cancelled")
            raise
        if _is_error(result):
            span.fail("tool_error")
        return result


def _name(exchange: Exchange) -> str:
    """The method, and what it is about where there are few of them."""
    method, name = exchange.request.method, exchange.params.get("name")
    return f"{method} {name}" if method in NAMED and isinstance(name, str) else method


def _attributes(exchange: Exchange) -> dict[str, str | int | bool]:
    request, params = exchange.request, exchange.params
    attributes: dict[str, Any] = {
        "mcp.method.name": request.method,
        "mcp.protocol.version": exchange.version,
        "network.transport": "tcp" if exchange.client.remote_address else "pipe",
        "mcphub.tenant": exchange.principal.tenant_slug,
    }
    if request.id is not None:
        attributes["jsonrpc.request.id"] = id_json(request.id).decode()
    if exchange.session is not None:
        # The hub's own id of it: the one that clients carry is a secret.
        attributes["mcp.session.id"] = str(exchange.session.id)
    if request.method in NAMED and isinstance(params.get("name"), str):
        attributes[NAMED[request.method]] = params["name"]
    if request.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    if isinstance(params.get("uri"), str):
        attributes["mcp.resource.uri"] = scrubbed(params["uri"])
    return attributes


def _is_error(result: bytes) -> bool:
    """Whether a tool says that it failed: its answer is a result like any other."""
    return FAILED in result and orjson.loads(result).get("isError") is True
