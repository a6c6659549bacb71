"""The span of a request that a tool sends. Called only where traces are on."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from tools_app.execution.outgoing.exchange import Outbound, Reply
from tools_app.telemetry import tracing
from tools_app.telemetry.tracing import Attributes

TRACEPARENT = "traceparent"
CLIENT_ERROR = 400


async def sent(request: Outbound, send: Callable[[Outbound], Awaitable[Reply]]) -> Reply:
    """Send a request in a span that the service may continue. It learns two ids, and nothing that a client said.

    The span names no path and no query: both may hold secrets.
    """
    assert tracing.active is not None
    url = request.url
    attributes: Attributes = {
        "http.request.method": request.method,
        "server.address": url.host,
        "server.port": url.port,
        "url.scheme": url.scheme,
    }
    with tracing.active.span("client", request.method, attributes) as span:
        reply = await send(_continued(request, tracing.active.traceparent()))
        span.note("http.response.status_code", reply.status)
        if reply.status >= CLIENT_ERROR:
            span.fail(str(reply.status))
        return reply


def _continued(request: Outbound, traceparent: str) -> Outbound:
    """The request with the running span in its headers, unless the tool has such a header of its own."""
    if not traceparent or any(name.lower() == TRACEPARENT for name, _ in request.headers):
        return request
    return replace(request, headers=(*request.headers, (TRACEPARENT, traceparent)))
