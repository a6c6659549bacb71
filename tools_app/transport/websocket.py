"""The WebSocket transport: `…/ws` with the subprotocol `mcp`, one JSON-RPC message per text frame in each direction.

A custom transport (2026-07-28, transports, §Custom Transports) with the messages, rules and records of stdio. Keys are
sent in a header, and Host and Origin are checked, as over HTTP.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from tools_app.calls import limits
from tools_app.core.config import config
from tools_app.protocol.errors import RpcError
from tools_app.transport import state
from tools_app.transport.connection import Connection
from tools_app.transport.dispatch import as_rpc_error
from tools_app.transport.handler import RequestAuthenticator, check_host_and_origin
from tools_app.transport.request import AsgiRequest

log = logging.getLogger(__name__)

SUBPROTOCOL = "mcp"
# The maximum number of unprocessed frames of a client, which is authenticated.
MAX_WAITING_MESSAGES = 4
# Close codes: 4000 plus the corresponding HTTP status. Not every server can send other codes.
NOT_ALLOWED, TOO_LARGE, NOT_TEXT, TOO_MANY, FAILED, STOPPING = 4401, 4413, 4415, 4429, 4500, 4503


class WebSocketConsumer(AsyncWebsocketConsumer):
    """One connection."""

    channel_layer_alias = None

    async def connect(self) -> None:
        """Accept the connection, or reject the handshake: the server answers 403."""
        self._incoming = AsgiRequest(self.scope, _no_body)
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_WAITING_MESSAGES)
        self._serving: asyncio.Task[None] | None = None
        self._visitor = RequestAuthenticator(self._incoming)
        self._gone = False
        web = state.current()
        try:
            check_host_and_origin(self._incoming)
            await self._visitor.authenticate(draining=web.draining)
        except Exception as problem:  # noqa: BLE001 - after any error there is no connection
            error = as_rpc_error(problem)
            self._visitor.note(error.http_status(modern=True), error.message, "WebSocket")
            await self.close(NOT_ALLOWED)
            return
        offered = self.scope.get("subprotocols") or []
        await self.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        self._serving = asyncio.create_task(self._serve(web))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:  # noqa: ARG002
        """Process one frame, which is one message."""
        message = None if text_data is None else text_data.encode(errors="surrogatepass")
        if message is None:
            await self.close(NOT_TEXT)
        elif len(message) > config.MCPHUB_MAX_BODY_BYTES:
            await self.close(TOO_LARGE)
        else:
            await self._hand_over(message)

    async def disconnect(self, code: int) -> None:  # noqa: ARG002 - the hook of Channels
        """End the client's requests in progress."""
        self._gone = True
        if self._serving is not None:
            await self._hand_over(None)
            await asyncio.wait([self._serving])

    async def _hand_over(self, message: bytes | None) -> None:
        """Pass a message, or None for the end, to the serving task, unless that is done.

        Channels passes one frame at a time: while this waits, the server reads no more frames.
        """
        if self._serving is None or self._serving.done():
            return
        if not self._inbox.full():
            self._inbox.put_nowait(message)
            return
        handing = asyncio.create_task(self._inbox.put(message))
        await asyncio.wait({handing, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        handing.cancel()

    async def _serve(self, web: state.WebState) -> None:
        web.busy += 1
        code = FAILED
        try:
            address = self._incoming.remote_address
            visitor = self._visitor
            connection = Connection(
                visitor.still, address, web, self._write, visitor.credential, identity=(visitor.identity, address)
            )
            async with limits.stream_for(self._visitor.known):
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
                # Raised by a server whose client has disconnected meanwhile.
                with suppress(OSError):
                    await self.close(code)

    async def _messages(self) -> AsyncIterator[bytes]:
        while (message := await self._inbox.get()) is not None:
            yield message

    async def _write(self, message: bytes) -> None:
        await self.send(text_data=message.decode())


async def _no_body() -> dict[str, Any]:
    raise AssertionError("a WebSocket has no body")
