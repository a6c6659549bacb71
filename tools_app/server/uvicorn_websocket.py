"""WebSockets under uvicorn, with bounds on what a client sends, and on how long it reads nothing.

These parts are not public API, and `tests/server/test_contracts.py` fails with the reason when a version changes one of
them:

- `WebSocketsSansIOProtocol`: `conn`, `frames`, `queue`, `scope`, `read_paused`, `curr_msg_data_type`,
  `handshake_complete`, `handle_connect`, `handle_text`, `handle_bytes`, `handle_cont`, `handle_ping`, `handle_pong` and
  `send_receive_event_to_app` bound fragments, pings and messages; `writable`, `pong_timer`, `pending_ping_payload`,
  `schedule_ping`, `send_keepalive_ping`, `stop_keepalive`, `keepalive_timeout`, `handle_close`, `close_timer` and
  `close_sent` notice a client that does not read.
- The parser of `websockets`: its `reader` keeps the frame that arrives.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from tools_app.server.base import IdleCounter
from tools_app.server.websocket_input import WebSocketInput

# How long a client may still send after it was told why its connection is closed.
CLOSE_SECONDS = 1.0


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle = IdleCounter()
        # The answer to the last ping that arrived while the client did not read.
        self._pong = b""
        self._pieces = self._pieces_at_ping = 0
        self._input = WebSocketInput(self, super().data_received, self.config.ws_max_size)

    def check_idle(self) -> None:
        """Cut off a client that has read nothing for `IDLE_SECONDS`."""
        if self._idle.is_idle(0, self.transport.get_write_buffer_size(), is_waiting=False):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Receive bytes."""
        self._pieces += 1
        self._input.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        self._input.stop()
        super().connection_lost(exc)
        # Not left to the next garbage collection.
        self.conn.reader.buffer.clear()
        self.frames = []

    # --- Messages -------------------------------------------------------------------------------------------------

    def handle_connect(self, event: Request) -> None:
        """Handle the handshake. What follows it is parsed once the application has accepted the connection."""
        self._input.pause()
        super().handle_connect(event)
        if not self.close_sent:
            self._input.announce(self.scope)

    def handle_text(self, event: Frame) -> None:
        """Handle a text message, or its first fragment."""
        self._handle_first("text", super().handle_text, event)

    def handle_bytes(self, event: Frame) -> None:
        """Handle a binary message, or its first fragment."""
        self._handle_first("bytes", super().handle_bytes, event)

    def handle_cont(self, event: Frame) -> None:
        """Handle a further fragment. They are joined at once: each one kept by itself would have no bound."""
        message: Any = self.frames[0]
        message += event.data
        size = len(event.data)
        _forget_data(event)
        if event.fin:
            self.send_receive_event_to_app()
        else:
            self._input.frame_received(size)

    def send_receive_event_to_app(self) -> None:
        """Queue a message, which the application receives before the next one is parsed."""
        super().send_receive_event_to_app()
        self._input.message_received()
        if self.read_paused:
            self._input.pause()

    async def receive(self) -> Any:
        """Return the next event. Called by the application."""
        event = await super().receive()
        if self.handshake_complete and not self.read_paused:
            self._input.resume()
        return event

    async def send(self, message: Any) -> None:
        """Send a message, or accept or close the connection. Called by the application."""
        await super().send(message)
        if message["type"] == "websocket.send":
            # Its memory is held until the client has read most of it.
            await self.writable.wait()
        if not self.read_paused and (self.handshake_complete or self.close_sent):
            self._input.resume()

    def _handle_first(self, kind: Any, handle_message: Callable[[Frame], None], event: Frame) -> None:
        if event.fin:
            handle_message(event)
        else:
            self.curr_msg_data_type = kind
            message: Any = bytearray(event.data)
            self.frames = [message]
            self._input.frame_received(len(message))
        _forget_data(event)

    def message_bytes(self) -> int:
        """Return how much of an incomplete message is kept."""
        return len(self.conn.reader.buffer) + sum(map(len, self.frames))

    def pause_reading(self) -> None:
        """Read nothing from the client."""
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self.transport.resume_reading()

    # --- Clients that do not read ---------------------------------------------------------------------------------

    def handle_ping(self) -> None:
        """Answer a ping. While the client does not read, only the last one is answered (RFC 6455, §5.5.3)."""
        self._input.frame_received()
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._pong = b"".join(self.conn.data_to_send()) or self._pong

    def resume_writing(self) -> None:
        """Called by the transport when the client has read again."""
        super().resume_writing()
        self._send_pong()

    def handle_close(self, event: Frame) -> None:
        """Handle a close frame, whose answer may have been made with that to a ping."""
        self._send_pong()
        super().handle_close(event)

    def _send_pong(self) -> None:
        pong, self._pong = self._pong, b""
        if pong and not self.transport.is_closing():
            self.transport.write(pong)

    def handle_pong(self, event: Frame) -> None:
        """Handle a pong."""
        self._input.frame_received()
        super().handle_pong(event)

    def send_keepalive_ping(self) -> None:
        """Send a ping, unless the client has not read what was sent before."""
        self._pieces_at_ping = self._pieces
        if self.writable.is_set():
            super().send_keepalive_ping()
        else:
            self.schedule_ping()

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that has not answered a ping, unless its answer may be on its way.

        A pong waits for the end of a large frame, whose time is limited.
        """
        if self._input.is_stopped or self._pieces != self._pieces_at_ping:
            self.pong_timer = self.pending_ping_payload = None
            self.schedule_ping()
            return
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def fail(self, code: int, reason: str) -> None:
        """Close the connection."""
        if self.close_sent or self.transport.is_closing():
            return
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(CLOSE_SECONDS, self.transport.close)


def _forget_data(frame: Frame) -> None:
    """Free the data of a frame, which the parser keeps until the next frame arrives."""
    frame.data = b""
