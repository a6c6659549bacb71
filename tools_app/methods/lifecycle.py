"""How a client opens: `initialize` and `ping` in the handshake era, `server/discover` in the modern one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools_app.auth import sessions
from tools_app.auth.principal import Principal
from tools_app.execution.results import without
from tools_app.methods.exchange import Exchange
from tools_app.methods.registry import method
from tools_app.methods.results import EMPTY, SERVER, cacheable, rendered
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
    "extensions": {TASKS: {}},
}


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session: its wire id for the client's headers, and the result of `initialize`."""

    wire_id: str
    result: bytes


async def initialize(principal: Principal, params: Mapping[str, Any], remote_address: str) -> Opened:
    """Open a session (2025-11-25, lifecycle, §Initialization). Raises RpcError for bad parameters."""
    requested = params.get("protocolVersion")
    if not isinstance(requested, str):
        raise RpcError(INVALID_PARAMS, "params.protocolVersion must be a string.", status=400)
    client = _object(params, "clientInfo")
    version = negotiated(requested)
    wire_id = await sessions.start(principal, version, client, _object(params, "capabilities"), remote_address)
    result = {"protocolVersion": version, "capabilities": capabilities_in(version), "serverInfo": _server(version)}
    return Opened(wire_id, rendered(result, Era.HANDSHAKE))


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
    return cacheable({"supportedVersions": list(MODERN_VERSIONS), "capabilities": MODERN_CAPABILITIES}, exchange.era)
