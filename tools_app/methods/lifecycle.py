"""How a client opens: `initialize` and `ping` in the handshake era, `server/discover` in the modern one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools_app.auth import sessions
from tools_app.auth.keys import digest_of
from tools_app.auth.principal import Principal
from tools_app.auth.sessions import Agreement, SessionFacts
from tools_app.execution.results import without
from tools_app.methods import permitting
from tools_app.methods.exchange import Exchange
from tools_app.methods.registry import method
from tools_app.methods.results import EMPTY, SERVER, cacheable, rendered
from tools_app.methods.skills import SETTINGS, SKILLS
from tools_app.methods.tasks import EXPERIMENTAL, TASKS
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.versions import (
    MODERN_VERSIONS,
    Era,
    has_annotations,
    has_structured_content,
    has_tasks,
    negotiated,
)

CHANGING: Final = {"listChanged": True}
MODERN_CAPABILITIES: Final[Mapping[str, Any]] = {
    "tools": CHANGING,
    "resources": {**CHANGING, "subscribe": True},
    "prompts": CHANGING,
    "completions": {},
    "logging": {},
    "extensions": {TASKS: {}, SKILLS: SETTINGS},
}


@dataclass(frozen=True, slots=True)
class Opening:
    """What `initialize` agrees on (2025-11-25, lifecycle, §Initialization)."""

    version: str
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]

    def welcome(self, principal: Principal) -> bytes:
        """The result of `initialize`. Who cannot be told from others gets no list of tasks (2025-11-25, tasks)."""
        declared = capabilities_in(self.version)
        if principal.key_id is None and "tasks" in declared:
            declared["tasks"] = without(declared["tasks"], "list")
        result = {
            "protocolVersion": self.version,
            "capabilities": permitting.declared(declared, principal, Era.HANDSHAKE),
            "serverInfo": _server(self.version),
        }
        return rendered(result, Era.HANDSHAKE)

    def offer(self, principal: Principal) -> Agreement:
        """The same for the session's row."""
        client = {**self.client, "name": principal.named(str(self.client.get("name", "")))}
        return Agreement(self.version, client, self.capabilities)


def opening(params: Mapping[str, Any]) -> Opening:
    """What a client's `initialize` asks for. Raises RpcError for bad parameters."""
    requested = params.get("protocolVersion")
    if not isinstance(requested, str):
        raise RpcError(INVALID_PARAMS, "params.protocolVersion must be a string.", status=400)
    return Opening(negotiated(requested), _object(params, "clientInfo"), _object(params, "capabilities"))


async def agreed(
    opening: Opening, principal: Principal, remote_address: str, waiting: SessionFacts | None
) -> SessionFacts:
    """The session that an `initialize` opens on a channel: the one that was `waiting` for it, or a new one."""
    if waiting is None:
        wire_id = await sessions.start(principal, opening.offer(principal), remote_address)
        digest = digest_of(wire_id)
    else:
        await sessions.agree(waiting, opening.offer(principal))
        digest = waiting.digest
    session = await sessions.alive(principal, digest)
    assert session is not None, "it was made a moment ago"
    return session


def capabilities_in(version: str) -> dict[str, Any]:
    """What the hub declares in a handshake revision (lifecycle, §Capability Negotiation)."""
    unknown = ["extensions"] if has_annotations(version) else ["extensions", "completions"]
    declared = without(MODERN_CAPABILITIES, *unknown)
    return declared | ({"tasks": EXPERIMENTAL} if has_tasks(version) else {})


def _object(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = params.get(name, {})
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"params.{name} must be an object.", status=400)
    return value


def _server(version: str) -> dict[str, str]:
    return {name: value for name, value in SERVER.items() if name != "title" or has_structured_content(version)}


@method("ping", Era.HANDSHAKE)
async def ping(_exchange: Exchange) -> bytes:
    """Answer that the hub is there (2025-11-25, ping)."""
    return EMPTY


@method("server/discover", Era.MODERN)
async def discover(exchange: Exchange) -> bytes:
    """Say what the hub speaks and offers (2026-07-28, discovery)."""
    declared = permitting.declared(MODERN_CAPABILITIES, exchange.principal, Era.MODERN)
    return cacheable({"supportedVersions": list(MODERN_VERSIONS), "capabilities": declared}, exchange.era)
