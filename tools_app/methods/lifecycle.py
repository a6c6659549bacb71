"""Connection setup in both eras: `initialize`, `ping` and `server/discover`.

`logging/setLevel`, which changes a session's agreement later in the handshake era, is part of it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tools_app.calls import sessions
from tools_app.calls.request import EMPTY, RequestContext, cacheable_result, encoded_result
from tools_app.calls.sessions import Negotiation, SessionFacts
from tools_app.catalog.tool_api.results import without
from tools_app.identity.principal import Principal
from tools_app.methods import permissions
from tools_app.methods.registry import method
from tools_app.methods.resources import SETTINGS, SKILLS
from tools_app.methods.tasks import EXPERIMENTAL, TASKS
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import SERVER, text_in
from tools_app.protocol.jsonrpc import MAX_VERSION_LENGTH, capabilities_problem, check_text, client_info
from tools_app.protocol.versions import (
    LOG_LEVELS,
    MODERN_VERSIONS,
    Era,
    has_annotations,
    has_structured_content,
    has_tasks,
    negotiated,
)
from tools_app.tenants.keys import digest_of

LIST_CHANGED: Final = {"listChanged": True}
MODERN_CAPABILITIES: Final[Mapping[str, Any]] = {
    "tools": LIST_CHANGED,
    "resources": {**LIST_CHANGED, "subscribe": True},
    "prompts": LIST_CHANGED,
    "completions": {},
    "logging": {},
    "extensions": {TASKS: {}, SKILLS: SETTINGS},
}


@dataclass(frozen=True, slots=True)
class Initialization:
    """The outcome of `initialize` (2025-11-25, lifecycle, §Initialization)."""

    version: str
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]

    def result_for(self, principal: Principal) -> bytes:
        """Return the result of `initialize`. Unidentified callers get no `tasks/list` (2025-11-25, tasks)."""
        declared = capabilities_in(self.version)
        if principal.key_id is None and "tasks" in declared:
            declared["tasks"] = without(declared["tasks"], "list")
        result = {
            "protocolVersion": self.version,
            "capabilities": permissions.permitted_capabilities(declared, principal, Era.HANDSHAKE),
            "serverInfo": {
                name: value for name, value in SERVER.items() if name != "title" or has_structured_content(self.version)
            },
        }
        return encoded_result(result, Era.HANDSHAKE)

    def negotiation(self, principal: Principal) -> Negotiation:
        """Return the same facts for the session's row."""
        client = {**self.client, "name": principal.recorded_name(str(self.client.get("name", "")))}
        return Negotiation(self.version, client, self.capabilities)


def parse_initialize(params: Mapping[str, Any]) -> Initialization:
    """Parse the parameters of `initialize`. Raises RpcError for bad parameters."""
    requested = params.get("protocolVersion")
    if not isinstance(requested, str):
        raise RpcError(INVALID_PARAMS, "params.protocolVersion must be a string.", status=400)
    check_text(requested, "protocolVersion", MAX_VERSION_LENGTH)
    capabilities = _object(params, "capabilities")
    problem = capabilities_problem(capabilities, "capabilities")
    if problem is not None:
        raise problem
    return Initialization(negotiated(requested), client_info(_object(params, "clientInfo")), capabilities)


async def open_session(
    initialization: Initialization, principal: Principal, remote_address: str, existing: SessionFacts | None
) -> SessionFacts:
    """Return the session that `initialize` opens: the one that was `existing` for it, or a new one.

    A caller that is cancelled meanwhile leaves no session: it would count against the tenant's limit until it is idle
    for too long.
    """
    opening = asyncio.create_task(_open_session(initialization, principal, remote_address, existing))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(Exception):  # the cancellation is what the caller is to see
            await sessions.end(await opening, "closed")
        raise


async def _open_session(
    initialization: Initialization, principal: Principal, remote_address: str, existing: SessionFacts | None
) -> SessionFacts:
    if existing is None:
        wire_id = await sessions.start(principal, initialization.negotiation(principal), remote_address)
        digest = digest_of(wire_id)
    else:
        await sessions.store_negotiation(existing, initialization.negotiation(principal))
        digest = existing.digest
    session = await sessions.find_by_digest(principal, digest)
    assert session is not None, "it was made a moment ago"
    return session


def capabilities_in(version: str) -> dict[str, Any]:
    """Return the hub's capabilities in a handshake revision (lifecycle, §Capability Negotiation)."""
    unknown = ["extensions"] if has_annotations(version) else ["extensions", "completions"]
    declared = without(MODERN_CAPABILITIES, *unknown)
    return declared | ({"tasks": EXPERIMENTAL} if has_tasks(version) else {})


def _object(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = params.get(name, {})
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"params.{name} must be an object.", status=400)
    return value


@method("ping", Era.HANDSHAKE)
async def ping(_request_context: RequestContext) -> bytes:
    """Respond with an empty result (2025-11-25, ping)."""
    return EMPTY


@method("server/discover", Era.MODERN)
async def discover(context: RequestContext) -> bytes:
    """Return the supported revisions and the capabilities of the hub (2026-07-28, discovery)."""
    declared = permissions.permitted_capabilities(MODERN_CAPABILITIES, context.principal, Era.MODERN)
    return cacheable_result({"supportedVersions": list(MODERN_VERSIONS), "capabilities": declared}, context.era)


@method("logging/setLevel", Era.HANDSHAKE)
async def set_level(context: RequestContext) -> bytes:
    """Store the session's log level (2025-11-25, logging, §Setting Log Level). Raises RpcError."""
    level = text_in(context.params, "level")
    if level not in LOG_LEVELS:
        raise RpcError(INVALID_PARAMS, f"params.level must be one of {', '.join(LOG_LEVELS)}.", {"field": "level"})
    assert context.session is not None
    await sessions.set_log_level(context.session, level)
    return EMPTY
