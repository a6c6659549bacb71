"""HTTP tools: a request that an admin defines, sent for each call, and its answer as the tool's result.

This module is what the rest of the hub knows of them. The parts: `http_config` checks what the admin wrote,
`http_request` fills it with arguments, `outgoing` sends it, `http_response` reads the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools_app.execution.context import ToolContext
from tools_app.execution.kinds.base import Runner
from tools_app.execution.kinds.http_config import (
    BODY_MODES,
    METHODS,
    ConfigProblem,
    HttpConfig,
    parse_config,
    placeholders,
    secret_names,
)
from tools_app.execution.kinds.http_request import build_request
from tools_app.execution.kinds.http_response import to_contents, to_result
from tools_app.execution.kinds.templates import Values
from tools_app.execution.offers.resources import Read
from tools_app.execution.outgoing import traced
from tools_app.execution.outgoing.addresses import parse_networks
from tools_app.execution.outgoing.exchange import Outbound, Reply, Terms, exchange
from tools_app.execution.outgoing.failures import RequestFailed
from tools_app.execution.outgoing.redirects import exchange_following
from tools_app.execution.outgoing.scrubbing import Scrubber
from tools_app.execution.results import CallCancelled, ResourceResult, ToolError, ToolResult, failed
from tools_app.telemetry import tracing

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
    """How a checked `config` runs. `allowed_networks` are CIDRs beyond the public ones that it may reach.

    Raises ValueError for a network that is none.
    """
    used = {name: secrets[name] for name in secret_names(config) if name in secrets}
    terms = Terms(parse_networks(allowed_networks), timeout_seconds, config.max_response_bytes)
    return HttpTool(HttpSender(config, used, terms, Scrubber(used.values())), output_schema)


def http_reader(
    config: HttpConfig,
    secrets: Mapping[str, str],
    allowed_networks: Sequence[str],
    timeout_seconds: float,
    mime_type: str,
) -> Read:
    """How a resource is read whose contents a checked `config` brings. Raises ValueError for a network that is none."""
    used = {name: secrets[name] for name in secret_names(config) if name in secrets}
    terms = Terms(parse_networks(allowed_networks), timeout_seconds, config.max_response_bytes)
    sender = HttpSender(config, used, terms, Scrubber(used.values()))

    async def read(uri: str, variables: dict[str, str], _context: ToolContext) -> ResourceResult:
        try:
            reply = await sender.reply(dict(variables))
        except RequestFailed as failure:
            raise ToolError(sender.scrubber.text(failure.message)) from failure
        return to_contents(reply, uri, mime_type, sender.scrubber)

    return read


@dataclass(frozen=True)
class HttpSender:
    """Sends the request of a tool or a resource. `secrets` holds those that its templates name."""

    config: HttpConfig
    secrets: Mapping[str, str]
    terms: Terms
    scrubber: Scrubber

    async def reply(self, arguments: dict[str, Any]) -> Reply:
        """What the service answers. Raises ToolError for arguments that fit no request, and RequestFailed."""
        request = build_request(self.config, Values(arguments, self.secrets))
        return await (self._send(request) if tracing.active is None else traced.sent(request, self._send))

    async def _send(self, request: Outbound) -> Reply:
        if self.config.follow_redirects:
            return await exchange_following(request, self.terms, self.scrubber)
        return await exchange(request, self.terms)


@dataclass(frozen=True)
class HttpTool:
    """The runner of one HTTP tool."""

    sender: HttpSender
    output_schema: Mapping[str, Any] | None

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Send the request for `arguments`, unless nobody wants the answer any more.

        Raises ToolError for arguments that fit no request, and CallCancelled.
        """
        if context.cancelled:
            raise CallCancelled
        scrubber = self.sender.scrubber
        try:
            reply = await self.sender.reply(arguments)
        except RequestFailed as failure:
            return failed(scrubber.text(failure.message), scrubber.text(failure.cause))
        return to_result(reply, self.output_schema, scrubber)
