"""WebSocket: `…/ws` with the subprotocol `mcp`, one JSON-RPC message in each text frame, in either direction.

A transport of the hub's own (2026-07-28, transports, §Custom Transports): messages, rules and records are those of
stdio. A key travels in a header, as over HTTP; the same Host and Origin are refused.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from tools_app.audit import denials
from tools_app.audit.denials import Denial
from tools_app.audit.recorder import RecorderGone
from tools_app.auth.principal import Principal, anybody, authenticate
from tools_app.models.config import config
from tools_app.protocol.errors import RpcError
from tools_app.transport import guards, state
from tools_app.transport.connection import Connection
from tools_app.transport.incoming import Incoming

log = logging.getLogger(__name__)

SUBPROTOCOL = "mcp"
# RFC 6455, §7.4.1.
NORMAL, GOING_AWAY, UNSUPPORTED, POLICY, TOO_BIG = 1000, 1001, 1003, 1008, 1009


class WebSocketConsumer(AsyncWebsocketConsumer):
    """One connection."""

    channel_layer_alias = None

    async def connect(self) -> None:
        """Accept the connection, or refuse it before it is one: the server answers 403."""
        self._incoming = Incoming(self.scope, _no_body)
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._serving: asyncio.Task[None] | None = None
        web = state.current()
        refusal = await self._refusal(web.draining)
        if refusal is not None:
            status, cause = refusal
            self._note(status, cause)
            await self.close(POLICY)
            return
        offered = self.scope.get("subprotocols") or []
        await self.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        self._serving = asyncio.create_task(self._serve(web))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:  # noqa: ARG002
        """Take one frame, which is one message."""
        if text_data is None:
            await self.close(UNSUPPORTED)
        elif len(text_data) > config.MCPHUB_MAX_BODY_BYTES:
            await self.close(TOO_BIG)
        else:
            self._inbox.put_nowait(text_data.encode(errors="surrogatepass"))

    async def disconnect(self, code: int) -> None:  # noqa: ARG002 - the hook of Channels
        """End what still runs for this client."""
        if self._serving is not None:
            self._inbox.put_nowait(None)
            await asyncio.wait([self._serving])

    async def _serve(self, web: state.WebState) -> None:
        web.busy += 1
        try:
            connection = Connection(self._who, self._incoming.remote_address, web, self._write)
            await connection.serve(self._messages())
            if connection.stream.ended.is_set():
                await self.close(GOING_AWAY if web.draining else POLICY)
        except Exception:
            log.exception("A WebSocket broke")
            await self.close(1011)
        finally:
            web.busy -= 1

    async def _messages(self) -> AsyncIterator[bytes]:
        while (message := await self._inbox.get()) is not None:
            yield message

    async def _write(self, message: bytes) -> None:
        await self.send(text_data=message.decode())

    async def _refusal(self, draining: bool) -> tuple[int, str] | None:
        try:
            guards.check(self._incoming)
        except RpcError as problem:
            return problem.http_status(modern=True), problem.message
        if draining:
            return 503, "The hub is stopping."
        principal = await self._who()
        if principal is None:
            return 401, "A valid API key is needed."
        if self._incoming.tenant_slug not in (None, principal.tenant_slug):
            return 404, "Not found."
        return None

    async def _who(self) -> Principal | None:
        """The principal of the connection's key, or anybody, where a public tenant is called without one."""
        if self._incoming.credential is not None:
            return await authenticate(self._incoming.credential)
        slug = self._incoming.tenant_slug
        return await anybody(slug, self._incoming.remote_address) if slug else None

    def _note(self, status: int, cause: str) -> None:
        try:
            denials.note(Denial(status, cause, self._incoming.remote_address, method="WebSocket"))
        except RecorderGone:
            log.warning("A denial (%d) could not be recorded", status)


async def _no_body() -> dict[str, Any]:
    raise AssertionError("a WebSocket has no body")
