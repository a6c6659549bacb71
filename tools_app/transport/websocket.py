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
from tools_app.core import request_memory
from tools_app.core.config import config
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.protocol.close_codes import FAILED, NOT_ALLOWED, NOT_TEXT, STOPPING, TOO_LARGE, TOO_MANY
from tools_app.protocol.errors import RpcError
from tools_app.transport import state
from tools_app.transport.connection import Connection
from tools_app.transport.dispatch import as_rpc_error
from tools_app.transport.handler import RequestAuthenticator, check_host_and_origin
from tools_app.transport.incoming import Incoming
from tools_app.transport.request import AsgiRequest, Disconnected

log = logging.getLogger(__name__)

SUBPROTOCOL = "mcp"
# The maximum number of unprocessed frames of a client, which is authenticated.
MAX_WAITING_MESSAGES = 4


class WebSocketConsumer(AsyncWebsocketConsumer):
    """One connection."""

    channel_layer_alias = None

    async def connect(self) -> None:
        """Accept the connection, or reject the handshake: the server answers 403."""
        self._http_request = AsgiRequest(self.scope, _no_body)
        self._inbox: asyncio.Queue[Incoming | None] = asyncio.Queue(MAX_WAITING_MESSAGES)
        self._serving: asyncio.Task[None] | None = None
        self._authenticator = RequestAuthenticator(self._http_request)
        self._is_disconnected = self._is_closed = False
        web = state.current()
        try:
            check_host_and_origin(self._http_request)
            await self._authenticator.authenticate(draining=web.draining)
        except Exception as problem:  # noqa: BLE001 - after any error there is no connection
            error = as_rpc_error(problem)
            self._authenticator.record_denial(error.http_status(modern=True), error.message, "WebSocket")
            await self.close(NOT_ALLOWED)
            return
        offered = self.scope.get("subprotocols") or []
        await self.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        self._serving = asyncio.create_task(self._serve(web))

    async def websocket_receive(self, event: dict[str, Any]) -> None:
        """Process one frame, which is one message. Its event keeps no copy of it while it waits."""
        if self._is_closed:
            return
        text = event.pop("text", None)
        message = None if text is None else text.encode(errors="surrogatepass")
        del text
        if message is None:
            await self.close(NOT_TEXT)
            return
        if len(message) > config.MCPHUB_MAX_BODY_BYTES:
            await self.close(TOO_LARGE)
            return
        free = None
        if len(message) > LARGE_BYTES:
            tenant_id = self._authenticator.authenticated_principal.tenant_id
            try:
                free = await request_memory.hold_message(tenant_id, len(message))
            except request_memory.TooMuchMemory:
                await self.close(TOO_MANY)
                return
        if not await self._hand_over(Incoming(message, free)) and free is not None:
            free()

    async def close(self, code: int | bool | None = None, reason: str | None = None) -> None:
        """Close the connection, unless it is closed: what the client sent before it learns of that still arrives."""
        if not self._is_closed:
            self._is_closed = True
            await super().close(code, reason)

    async def disconnect(self, code: int) -> None:  # noqa: ARG002 - the hook of Channels
        """End the client's requests in progress."""
        self._is_disconnected = True
        if self._serving is not None:
            await self._hand_over(None)
            await asyncio.wait([self._serving])

    async def _hand_over(self, message: Incoming | None) -> bool:
        """Pass a message, or None for the end, to the serving task. Returns False if that is done.

        Channels passes one frame at a time: while this waits, the server reads no more frames.
        """
        if self._serving is None or self._serving.done():
            return False
        if not self._inbox.full():
            self._inbox.put_nowait(message)
            return True
        handing = asyncio.create_task(self._inbox.put(message))
        try:
            await asyncio.wait({handing, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if handing.cancel() and message is not None and message.free is not None:
                message.free()
            raise
        is_handed_over = not handing.cancel()
        if self._serving.done():
            self._empty_inbox()
        return is_handed_over

    def _empty_inbox(self) -> None:
        while not self._inbox.empty():
            left = self._inbox.get_nowait()
            if left is not None and left.free is not None:
                left.free()

    async def _serve(self, web: state.WebState) -> None:
        web.busy += 1
        code = FAILED
        try:
            address = self._http_request.remote_address
            authenticator = self._authenticator
            connection = Connection(
                authenticator.revalidate,
                address,
                web,
                self._write,
                authenticator.credential,
                identity=(authenticator.identity, address),
            )
            async with limits.stream_slot(self._authenticator.authenticated_principal):
                await connection.serve(self._messages())
            code = STOPPING if web.draining else NOT_ALLOWED
        except RpcError as refusal:
            self._authenticator.record_denial(refusal.http_status(modern=True), refusal.message, "WebSocket")
            code = TOO_MANY
        except Exception:
            log.exception("A WebSocket broke")
        finally:
            web.busy -= 1
            self._empty_inbox()
            if not self._is_disconnected:
                # The client has disconnected meanwhile, or does not read.
                with suppress(OSError, Disconnected):
                    await self.close(code)

    async def _messages(self) -> AsyncIterator[Incoming]:
        while (message := await self._inbox.get()) is not None:
            yield message
            # It is not kept until the next one arrives.
            del message

    async def _write(self, message: bytes) -> None:
        await self.send(text_data=message.decode())


async def _no_body() -> dict[str, Any]:
    raise AssertionError("a WebSocket has no body")
