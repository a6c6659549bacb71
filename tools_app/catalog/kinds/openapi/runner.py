"""Tools for operations of an API source: the request that its OpenAPI document describes is sent for each call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from tools_app.catalog.kinds.base import Runner
from tools_app.catalog.kinds.http.runner import HttpTool, sent
from tools_app.catalog.kinds.openapi.attachments import Attachments
from tools_app.catalog.kinds.openapi.config import OperationConfig, SourceSettings, base_url_of
from tools_app.catalog.kinds.openapi.request import Credential, build_operation
from tools_app.catalog.tool_api.results import ToolError, size_of
from tools_app.core import large_work
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import Outbound, Reply, RequestPolicy, exchange
from tools_app.core.http.redirects import exchange_following
from tools_app.core.http.urls import Url
from tools_app.core.telemetry import tracing
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.models import ApiSource

READING: Final = frozenset({"GET", "HEAD"})


def operation_runner(
    config: OperationConfig,
    source: SourceSettings,
    secrets: Mapping[str, str],
    allowed_networks: Sequence[str],
    timeout_seconds: float,
    *,
    output_schema: Mapping[str, Any] | None,
) -> Runner:
    """Return the runner of a validated `config`. `secrets` are those of the tenant by name.

    Raises ValueError for an invalid network, and ConfigProblem for a source without a base URL.
    """
    policy = RequestPolicy(
        parse_networks(allowed_networks), timeout_seconds, config.max_response_bytes, tenant=source.tenant_id
    )
    chosen = chosen_schemes(config, source.secrets)
    used = {name: secrets[name] for name in (source.secrets[scheme] for scheme in chosen) if name in secrets}
    missing = [source.secrets[scheme] for scheme in chosen if source.secrets[scheme] not in secrets]
    credentials = [
        Credential(source.schemes[scheme]["kind"], source.schemes[scheme]["name"], secrets[source.secrets[scheme]])
        for scheme in chosen
        if source.secrets[scheme] in secrets and scheme in source.schemes
    ]
    base = base_url_of(config, source)
    # Secrets, and the parts of `user:password`.
    parts = (part for value in used.values() for part in value.partition(":")[2:] if part)
    scrubber = Scrubber([*used.values(), *parts])
    sender = OperationSender(
        config, base, credentials, missing, policy, scrubber, Attachments(config), source.tenant_id
    )
    return HttpTool(sender, output_schema)


def settings_of(
    source: ApiSource, servers: list[dict[str, Any]], schemes: Mapping[str, Mapping[str, str]]
) -> SourceSettings:
    """Return what tools of a source use, with the servers and security schemes of its document."""
    where = (source.url, source.base_url, servers, source.server_variables)
    return SourceSettings(*where, schemes, source.secrets, source.tenant_id)


def chosen_schemes(config: OperationConfig, mapped: Mapping[str, str]) -> list[str]:
    """Return the schemes that a request uses: the first alternative whose schemes all have a secret."""
    for alternative in config.security:
        if alternative and all(mapped.get(scheme) for scheme in alternative):
            return alternative
    return []


@dataclass(frozen=True)
class OperationSender:
    """Sends the request of an operation. `missing` are secrets that are chosen but not set."""

    config: OperationConfig
    base: Url
    credentials: list[Credential]
    missing: list[str]
    policy: RequestPolicy
    scrubber: Scrubber
    attachments: Attachments
    tenant_id: UUID

    async def reply(self, arguments: dict[str, Any]) -> Reply:
        """Return the response. Raises ToolError for arguments that do not fit a request, and RequestFailed."""
        if self.missing:
            raise ToolError(f"This tool requires the secret '{self.missing[0]}', which is not set.")
        if self.attachments:
            arguments = await self.attachments.filled(arguments, self.tenant_id)
        build = partial(build_operation, self.config, self.base, arguments, self.credentials)
        request = await large_work.run(size_of(arguments), build)
        return await (self._send(request) if tracing.active is None else sent(request, self._send))

    async def _send(self, request: Outbound) -> Reply:
        """Send the request; redirects are followed where that repeats nothing."""
        if request.method in READING:
            return await exchange_following(request, self.policy, self.scrubber)
        return await exchange(request, self.policy)
