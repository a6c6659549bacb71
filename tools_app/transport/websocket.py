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
from tools_app.protocol.errors import INVALID_REQUEST, NOT_PERMITTED, RpcError
from tools_app.transport import guards, state
from tools_app.transport.answering import as_rpc_error
from tools_app.transport.connection import Connection
from tools_app.transport.incoming import Incoming
from tools_app.transport.turn import RECORDED_DENIALS

log = logging.getLogger(__name__)

SUBPROTOCOL = "mcp"
# Why the hub closes a connection: 4000 and the HTTP status that says the same. Not every server can send other codes.
NOT_ALLOWED, TOO_LARGE, NOT_TEXT, FAILED, STOPPING = 4401, 4413, 4415, 4500, 4503


class WebSocketConsumer(AsyncWebsocketConsumer):
    """One connection."""

    channel_layer_alias = None

    async def connect(self) -> None:
        """Accept the connection, or refuse it before it is one: the server answers 403."""
        self._incoming = Incoming(self.scope, _no_body)
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._serving: asyncio.Task[None] | None = None
        self._principal: Principal | None = None
        self._gone = False
        web = state.current()
        try:
            await self._admit(web)
        except Exception as problem:  # noqa: BLE001 - whatever it is, there will be no connection
            self._note(as_rpc_error(problem))
            await self.close(NOT_ALLOWED)
            return
        offered = self.scope.get("subprotocols") or []
        await self.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        self._serving = asyncio.create_task(self._serve(web))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:  # noqa: ARG002
        """Take one frame, which is one message."""
        message = None if text_data is None else text_data.encode(errors="surrogatepass")
        if message is None:
            await self.close(NOT_TEXT)
        elif len(message) > config.MCPHUB_MAX_BODY_BYTES:
            await self.close(TOO_LARGE)
        else:
            self._inbox.put_nowait(message)

    async def disconnect(self, code: int) -> None:  # noqa: ARG002 - the hook of Channels
        """End what still runs for this client."""
        self._gone = True
        if self._serving is not None:
            self._inbox.put_nowait(None)
            await asyncio.wait([self._serving])

    async def _serve(self, web: state.WebState) -> None:
        web.busy += 1
        code = FAILED
        try:
            address = self._incoming.remote_address
            connection = Connection(self._who, address, web, self._write, self._incoming.credential)
            await connection.serve(self._messages())
            code = STOPPING if web.draining else NOT_ALLOWED
        except Exception:
            log.exception("A WebSocket broke")
        finally:
            web.busy -= 1
            if not self._gone:
                await self.close(code)

    async def _messages(self) -> AsyncIterator[bytes]:
        while (message := await self._inbox.get()) is not None:
            yield message

    async def _write(self, message: bytes) -> None:
        await self.send(text_data=message.decode())

    async def _admit(self, web: state.WebState) -> None:
        """Let the client in. Raises RpcError, and the store's error."""
        guards.check(self._incoming)
        if web.draining:
            raise RpcError(INVALID_REQUEST, "The hub is stopping.", status=503)
        self._principal = await self._who()
        if self._principal is None:
            raise RpcError(NOT_PERMITTED, "A valid API key is needed.", status=401)
        if self._incoming.tenant_slug not in (None, self._principal.tenant_slug):
            raise RpcError(INVALID_REQUEST, "Not found.", status=404)

    async def _who(self) -> Principal | None:
        """The principal of the connection's key, or anybody, where a public tenant is called without one."""
        if self._incoming.credential is not None:
            return await authenticate(self._incoming.credential)
        slug = self._incoming.tenant_slug
        return await anybody(slug, self._incoming.remote_address) if slug else None

    def _note(self, error: RpcError) -> None:
        status = error.http_status(modern=True)
        if status not in RECORDED_DENIALS:
            return
        denial = Denial(
            http_status=status,
            cause=error.message,
            remote_address=self._incoming.remote_address,
            tenant_id=self._principal.tenant_id if self._principal else None,
            key_id=self._principal.key_id if self._principal else None,
            method="WebSocket",
        )
        try:
            denials.note(denial)
        except RecorderGone:
            log.warning("A denial (%d) could not be recorded", status)


async def _no_body() -> dict[str, Any]:
    raise AssertionError("a WebSocket has no body")
