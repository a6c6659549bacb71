"""HTTP tools: a request that an admin defines is sent for each call, and its response is the tool's result.

This module is their public interface. The parts: `http_config` validates the configuration, `http_request` builds the
request, `core.http` sends it, in a span where tracing is on, and `http_response` converts the response.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from tools_app.catalog.kinds.base import Runner
from tools_app.catalog.kinds.http.config import (
    BODY_MODES,
    METHODS,
    ConfigProblem,
    HttpConfig,
    parse_config,
    placeholders,
    secret_names,
)
from tools_app.catalog.kinds.http.request import build_request
from tools_app.catalog.kinds.http.response import to_contents, to_result
from tools_app.catalog.kinds.templates import Values
from tools_app.catalog.resource_functions import Read
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import CallCancelled, ResourceResult, ToolError, ToolResult, failed, size_of
from tools_app.core import large_work
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import Outbound, Reply, RequestPolicy, exchange
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.redirects import exchange_following
from tools_app.core.telemetry import tracing
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.core.telemetry.tracing import Attributes

__all__ = [
    "BODY_MODES",
    "METHODS",
    "ConfigProblem",
    "HttpConfig",
    "http_reader",
    "http_runner",
    "parse_config",
    "placeholders",
    "secret_names",
]


def http_runner(
    config: HttpConfig,
    secrets: Mapping[str, str],
    allowed_networks: Sequence[str],
    timeout_seconds: float,
    output_schema: Mapping[str, Any] | None,
) -> Runner:
    """Return the runner of a validated `config`. `allowed_networks` are permitted CIDRs besides public addresses.

    Raises ValueError for an invalid network.
    """
    used = {name: secrets[name] for name in secret_names(config) if name in secrets}
    policy = RequestPolicy(parse_networks(allowed_networks), timeout_seconds, config.max_response_bytes)
    return HttpTool(HttpSender(config, used, policy, Scrubber(used.values())), output_schema)


def http_reader(
    config: HttpConfig,
    secrets: Mapping[str, str],
    allowed_networks: Sequence[str],
    timeout_seconds: float,
    mime_type: str,
) -> Read:
    """Return the reader of a resource that a validated `config` fetches. Raises ValueError for an invalid network."""
    used = {name: secrets[name] for name in secret_names(config) if name in secrets}
    policy = RequestPolicy(parse_networks(allowed_networks), timeout_seconds, config.max_response_bytes)
    sender = HttpSender(config, used, policy, Scrubber(used.values()))

    async def read(uri: str, variables: dict[str, str], _context: ToolContext) -> ResourceResult:
        try:
            reply = await sender.reply(dict(variables))
        except RequestFailed as failure:
            raise ToolError(sender.scrubber.text(failure.message)) from failure
        return await large_work.run(len(reply.body), partial(to_contents, reply, uri, mime_type, sender.scrubber))

    return read


@dataclass(frozen=True)
class HttpSender:
    """Sends the request of a tool or a resource. `secrets` holds those that its templates use."""

    config: HttpConfig
    secrets: Mapping[str, str]
    policy: RequestPolicy
    scrubber: Scrubber

    async def reply(self, arguments: dict[str, Any]) -> Reply:
        """Return the response. Raises ToolError for arguments that do not fit a request, and RequestFailed."""
        build = partial(build_request, self.config, Values(arguments, self.secrets))
        request = await large_work.run(size_of(arguments), build)
        return await (self._send(request) if tracing.active is None else sent(request, self._send))

    async def _send(self, request: Outbound) -> Reply:
        if self.config.follow_redirects:
            return await exchange_following(request, self.policy, self.scrubber)
        return await exchange(request, self.policy)


class Sender(Protocol):
    """Sends the request of a call."""

    @property
    def scrubber(self) -> Scrubber:
        """Redacts the secrets of the request."""

    async def reply(self, arguments: dict[str, Any]) -> Reply:
        """Return the response. Raises ToolError for arguments that do not fit a request, and RequestFailed."""


@dataclass(frozen=True)
class HttpTool:
    """The runner of one HTTP tool, or of one operation of an API source."""

    sender: Sender
    output_schema: Mapping[str, Any] | None

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Send the request for `arguments`, unless the call was cancelled.

        Raises ToolError for arguments that do not fit a request, and CallCancelled.
        """
        if context.cancelled:
            raise CallCancelled
        scrubber = self.sender.scrubber
        try:
            reply = await self.sender.reply(arguments)
        except RequestFailed as failure:
            return failed(scrubber.text(failure.message), scrubber.text(failure.cause))
        return await large_work.run(len(reply.body), partial(to_result, reply, self.output_schema, scrubber))


TRACEPARENT = "traceparent"
CLIENT_ERROR = 400


async def sent(request: Outbound, send: Callable[[Outbound], Awaitable[Reply]]) -> Reply:
    """Send a request in a span that the service may continue. It receives two ids, and no client data.

    The span contains neither path nor query: both may contain secrets.
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
        traceparent = tracing.active.traceparent()
        # Unless the tool sets such a header itself.
        if traceparent and not any(name.lower() == TRACEPARENT for name, _ in request.headers):
            request = replace(request, headers=(*request.headers, (TRACEPARENT, traceparent)))
        reply = await send(request)
        span.note("http.response.status_code", reply.status)
        if reply.status >= CLIENT_ERROR:
            span.fail(str(reply.status))
        return reply
