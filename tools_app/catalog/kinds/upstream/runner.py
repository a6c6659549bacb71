"""Tools, resources and prompts of upstream MCP servers: their endpoint, their pinned definition, and their runners.

The connections are above the catalog (`tools_app.upstreams`), which registers its `Forwarder` at startup. A definition
is pinned by a digest of all of it. If it changed, or is no longer listed, calls are refused with the reason.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import UUID

import orjson

from tools_app.catalog.completion import Completer
from tools_app.catalog.kinds import templates
from tools_app.catalog.kinds.templates import BadTemplate, Values
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import CallCancelled, PromptResult, ResourceResult, Result, ToolError
from tools_app.models import ItemState, Tenant, Upstream, UpstreamItem, UpstreamTransport
from tools_app.protocol.mirrored import Mirrored

UNAVAILABLE_REASONS: Final = {
    ItemState.CHANGED: "Its definition at the upstream '{upstream}' has changed. An admin must review it first.",
    ItemState.REMOVED: "The upstream '{upstream}' no longer offers it.",
    ItemState.NEW: "An admin must accept its definition first.",
}


@dataclass(frozen=True)
class SignIn:
    """Which credential calls of an upstream need, and how the hub gets one by OAuth. `client_secret` is its value.

    The client is one of `issuer` only.
    """

    kind: str
    owner: str
    header: str
    client_id: str = ""
    client_secret: str = field(repr=False, default="")
    issuer: str = ""
    scopes: str = ""


@dataclass(frozen=True)
class Endpoint:
    """All that a connection to an upstream depends on: two equal ones may share it. Never shown: it holds secrets."""

    id: UUID
    tenant_id: UUID
    name: str
    transport: str
    url: str
    command: tuple[str, ...]
    is_approved: bool
    era: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    environment: tuple[tuple[str, str], ...] = field(repr=False)
    allowed_networks: tuple[str, ...]
    secrets: tuple[str, ...] = field(repr=False, default=())
    sign_in: SignIn | None = None
    # Whose credential it has; "" for the tenant's, or none.
    owner: str = ""

    def __hash__(self) -> int:
        # Connections are found by it with every call: what tells almost all endpoints apart is enough.
        return hash((self.id.int, self.owner, self.url))


@dataclass(frozen=True)
class Pin:
    """The accepted definition of one item: its kind, its name at the upstream, and its digest."""

    kind: str
    name: str
    digest: str


class Forwarder(Protocol):
    """Sends calls to upstreams, with the credential that they need.

    Raises ToolError, CallCancelled and what questions to the client raise.
    """

    async def call_tool(
        self,
        endpoint: Endpoint,
        pin: Pin,
        arguments: dict[str, Any],
        context: ToolContext,
        mirrored: tuple[Mirrored, ...],
        *,
        as_task: bool,
    ) -> Result:
        """Call a tool. `as_task`: an upstream of the handshake era runs it as a task only."""

    async def read_resource(self, endpoint: Endpoint, pin: Pin, uri: str, context: ToolContext) -> ResourceResult:
        """Read a resource, or a resource of a template."""

    async def get_prompt(
        self, endpoint: Endpoint, pin: Pin, arguments: dict[str, Any], context: ToolContext
    ) -> PromptResult:
        """Render a prompt."""

    async def complete(
        self, endpoint: Endpoint, pin: Pin, argument: str, typed: str, given: Mapping[str, str]
    ) -> list[str]:
        """Return suggestions for an argument of a prompt, or for a variable of a template."""


_forwarders: list[Forwarder] = []


def register(forwarder: Forwarder) -> None:
    """Set the forwarder of this process."""
    _forwarders[:] = [forwarder]


def digest_of(definition: Mapping[str, Any]) -> str:
    """Return the digest of a whole definition, which does not depend on the order of its fields."""
    return hashlib.sha256(orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)).hexdigest()


def endpoint_of(upstream: Upstream, tenant: Tenant, secrets: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of an upstream with its secrets. Raises ToolError if one of them is not set."""
    values = Values({}, secrets)
    sign_in = None
    if upstream.credential and upstream.transport != UpstreamTransport.STDIO:
        sign_in = SignIn(
            kind=upstream.credential,
            owner=upstream.credential_owner,
            header=upstream.credential_header,
            client_id=upstream.oauth_client_id,
            client_secret=values.secret(upstream.oauth_client_secret) if upstream.oauth_client_secret else "",
            issuer=upstream.oauth_issuer,
            scopes=upstream.oauth_scopes,
        )
    used = {name for text in secret_templates_of(upstream) for name in templates.parse(text).secrets}
    return Endpoint(
        id=upstream.pk,
        tenant_id=tenant.pk,
        name=upstream.name,
        transport=upstream.transport,
        url=upstream.url,
        command=tuple(upstream.command),
        is_approved=upstream.is_command_approved,
        era=upstream.era,
        headers=_rendered(upstream.headers, values),
        environment=_rendered(upstream.environment, values),
        allowed_networks=(*tenant.allowed_networks, *upstream.approved_networks),
        # As they are sent: headers have no whitespace around them.
        secrets=tuple(sorted(values.secret(name).strip() for name in used)),
        sign_in=sign_in,
    )


def secret_templates_of(upstream: Upstream) -> Iterable[str]:
    """Return the templates of an upstream."""
    return [*upstream.headers.values(), *upstream.environment.values()]


def _rendered(texts: Mapping[str, str], values: Values) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, templates.rendered(templates.parse(text), values)) for name, text in texts.items()))


@dataclass(frozen=True)
class Source:
    """Where one item comes from: its endpoint and its pin, or why it cannot be called."""

    pin: Pin
    endpoint: Endpoint | None
    refusal: str = ""

    def reached(self, context: ToolContext) -> tuple[Forwarder, Endpoint]:
        """Return the forwarder and the endpoint. Raises ToolError with the reason why it is not called."""
        if context.cancelled:
            raise CallCancelled
        return self.available()

    def available(self) -> tuple[Forwarder, Endpoint]:
        """Return the forwarder and the endpoint. Raises ToolError with the reason why it is not called."""
        if self.refusal or self.endpoint is None:
            raise ToolError(self.refusal or "The upstream is not available.")
        if not _forwarders:
            raise ToolError("This process does not connect to upstreams.")
        return _forwarders[0], self.endpoint

    def completers(self, arguments: Iterable[str]) -> dict[str, Completer]:
        """Return completers that ask the upstream."""
        return {argument: self._completer(argument) for argument in arguments}

    def _completer(self, argument: str) -> Completer:
        async def complete(typed: str, given: Mapping[str, str]) -> list[str]:
            forwarder, endpoint = self.available()
            return await forwarder.complete(endpoint, self.pin, argument, typed, given)

        return complete


def source_of(item: UpstreamItem, tenant: Tenant, secrets: Mapping[str, str]) -> Source:
    """Return the source of an item; `item.upstream` is loaded. One that cannot be called has the reason."""
    pin = Pin(item.kind, item.name, item.digest)
    if item.state != ItemState.ACCEPTED:
        reason = UNAVAILABLE_REASONS[ItemState(item.state)].format(upstream=item.upstream.name)
        return Source(pin, None, f"'{item.name}' is not called. {reason}")
    try:
        return Source(pin, endpoint_of(item.upstream, tenant, secrets))
    except (ToolError, BadTemplate) as problem:
        return Source(pin, None, str(problem))


@dataclass(frozen=True)
class UpstreamTool:
    """The runner of one tool of an upstream."""

    source: Source
    mirrored: tuple[Mirrored, ...] = ()
    as_task: bool = False

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> Result:
        """Call the tool at its upstream. Raises ToolError and CallCancelled."""
        forwarder, endpoint = self.source.reached(context)
        pin, mirrored = self.source.pin, self.mirrored
        return await forwarder.call_tool(endpoint, pin, arguments, context, mirrored, as_task=self.as_task)


@dataclass(frozen=True)
class UpstreamReader:
    """The reader of one resource, or of the resources of one template."""

    source: Source

    async def __call__(self, uri: str, _variables: dict[str, str], context: ToolContext) -> ResourceResult:
        """Read the resource at its upstream. Raises ToolError, ResourceNotFound and CallCancelled."""
        forwarder, endpoint = self.source.reached(context)
        return await forwarder.read_resource(endpoint, self.source.pin, uri, context)


@dataclass(frozen=True)
class UpstreamRenderer:
    """The renderer of one prompt of an upstream."""

    source: Source

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> PromptResult:
        """Render the prompt at its upstream. Raises ToolError and CallCancelled."""
        forwarder, endpoint = self.source.reached(context)
        return await forwarder.get_prompt(endpoint, self.source.pin, arguments, context)
