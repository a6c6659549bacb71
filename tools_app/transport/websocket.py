"""WebSocket: `…/ws` with the subprotocol `mcp`, one JSON-RPC message in each text frame, in either direction.

A transport of the hub's own (2026-07-28, transports, §Custom Transports): messages, rules and records are those of
stdio. A key travels in a header, as over HTTP; the same Host and Origin are refused.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from tools_app.execution import limiting
from tools_app.models.config import config
from tools_app.protocol.errors import RpcError
from tools_app.transport import guards, state
from tools_app.transport.answering import as_rpc_error
from tools_app.transport.connection import Connection
from tools_app.transport.incoming import Incoming
from tools_app.transport.visitor import Visitor

log = logging.getLogger(__name__)

SUBPROTOCOL = "mcp"
# Why the hub closes a connection: 4000 and the HTTP status that says the same. Not every server can send other codes.
NOT_ALLOWED, TOO_LARGE, NOT_TEXT, TOO_MANY, FAILED, STOPPING = 4401, 4413, 4415, 4429, 4500, 4503


class WebSocketConsumer(AsyncWebsocketConsumer):
    """One connection."""

    channel_layer_alias = None

    async def connect(self) -> None:
        """Accept the connection, or refuse it before it is one: the server answers 403."""
        self._incoming = Incoming(self.scope, _no_body)
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._serving: asyncio.Task[None] | None = None
        self._visitor = Visitor(self._incoming)
        self._gone = False
        web = state.current()
        try:
            guards.check(self._incoming)
            await self._visitor.admit(draining=web.draining)
        except Exception as problem:  # noqa: BLE001 - whatever it is, there will be no connection
            error = as_rpc_error(problem)
            self._visitor.note(error.http_status(modern=True), error.message, "WebSocket")
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
            connection = Connection(self._visitor.still, address, web, self._write, self._visitor.credential)
            async with limiting.stream_for(self._visitor.known):
                await connection.serve(self._messages())
            code = STOPPING if web.draining else NOT_ALLOWED
        except RpcError as refusal:
            self._visitor.note(refusal.http_status(modern=True), refusal.message, "WebSocket")
            code = TOO_MANY
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


async def _no_body() -> dict[str, Any]:
    raise AssertionError("a WebSocket has no body")
