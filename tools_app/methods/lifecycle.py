"""How a client opens: `initialize` and `ping` in the handshake era, `server/discover` in the modern one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools_app.auth import sessions
from tools_app.auth.principal import Principal
from tools_app.methods.exchange import Exchange
from tools_app.methods.registry import method
from tools_app.methods.results import SERVER, cacheable, rendered
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.versions import MODERN_VERSIONS, Era, has_structured_content, negotiated

CAPABILITIES = {"tools": {"listChanged": True}}


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
    result = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": _server(version)}
    return Opened(wire_id, rendered(result, Era.HANDSHAKE))


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
    return b"{}"


@method("server/discover", Era.MODERN)
async def discover(exchange: Exchange) -> bytes:
    """Say what the hub speaks and offers (2026-07-28, discovery)."""
    return cacheable({"supportedVersions": list(MODERN_VERSIONS), "capabilities": CAPABILITIES}, exchange.era)
