"""`logging/setLevel`: from which level on a session wants to hear what tools log."""

from tools_app.auth import sessions
from tools_app.methods.exchange import Exchange
from tools_app.methods.invoking import text_in
from tools_app.methods.registry import method
from tools_app.methods.results import EMPTY
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.versions import LOG_LEVELS, Era


@method("logging/setLevel", Era.HANDSHAKE)
async def set_level(exchange: Exchange) -> bytes:
    """Keep the level for the session (2025-11-25, logging, §Setting Log Level). Raises RpcError."""
    level = text_in(exchange.params, "level")
    if level not in LOG_LEVELS:
        raise RpcError(INVALID_PARAMS, f"params.level must be one of {', '.join(LOG_LEVELS)}.", {"field": "level"})
    assert exchange.session is not None
    await sessions.set_log_level(exchange.session, level)
    return EMPTY
