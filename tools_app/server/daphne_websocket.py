"""WebSockets under Daphne, with bounds on what a client sends, and on how long it reads nothing.

These parts are not public API, and `tests/server/test_contracts.py` fails with the reason when a version changes one of
them:

- autobahn's protocol: `message_data`, `message_data_total_length`, `inside_message`, `current_frame`, `failedByMe`,
  `onMessageBegin`, `onMessageFrameData`, `onMessageFrameEnd`, `onPing`, `onPong` and `_sendAutoPing` bound fragments,
  pings and messages; `sendMessage` applies `maxMessagePayloadSize` to what the server sends as well.
- Twisted's `FileDescriptor`: `dataBuffer`, `offset` and `_tempDataLen` tell how much a client has not read.
"""

import asyncio
from typing import Any

from daphne.ws_protocol import WebSocketProtocol

from tools_app.server.base import IdleCounter
from tools_app.server.websocket_input import WebSocketInput

# Above this, pings are not answered: the client does not read.
MAX_UNREAD_BYTES = 64 * 1024


def unread_bytes(transport: Any) -> int:
    """Return how much a client has not read. Twisted does not tell."""
    return len(transport.dataBuffer) - transport.offset + transport._tempDataLen  # type: ignore[no-any-return] # noqa: SLF001


class WritableEvent:
    """Set while a connection is writable, or once it is closed (`IPushProducer`)."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._event.set()
        self.wait = self._event.wait

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Called when the client does not read."""
        self._event.clear()

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Called when the client has read."""
        self._event.set()

    stopProducing = resumeProducing  # noqa: N815 - Twisted's name


class WebSocketConnection(WebSocketProtocol):
    """One WebSocket."""

    maxMessagePayloadSize: int  # noqa: N815 - autobahn's name
    # autobahn sets it when the connection opens.
    inside_message = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.writable = WritableEvent()
        self._idle = IdleCounter()

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        """Handle the start of the connection, whose handshake Twisted has read."""
        super().connectionMade()
        self._input = WebSocketInput(self, super().dataReceived, self.maxMessagePayloadSize)
        # Until now this was the HTTP channel, which needs it no more.
        self.transport.unregisterProducer()
        self.transport.registerProducer(self.writable, True)

    def connectionLost(self, *args: Any) -> None:  # noqa: N802 - Twisted's name
        """Handle the end of the connection. autobahn may have unregistered whom Twisted would notify."""
        self._input.stop()
        self.writable.stopProducing()
        super().connectionLost(*args)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Receive bytes."""
        self._input.receive(data)

    def check_idle(self) -> None:
        """Cut off a client that has read nothing for `IDLE_SECONDS`."""
        if self._idle.is_idle(0, unread_bytes(self.transport), is_waiting=False):
            self.transport.abortConnection()

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Parse nothing more: the application has messages to receive."""
        self._input.pause()
        self.pause_reading()

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Parse what has arrived meanwhile, and read again."""
        self._input.resume()

    def pause_reading(self) -> None:
        """Read nothing from the client."""
        self.transport.pauseProducing()

    def resume_reading(self) -> None:
        """Read again."""
        self.transport.resumeProducing()

    # --- Messages -------------------------------------------------------------------------------------------------

    def onConnect(self, request: Any) -> Any:  # noqa: N802 - autobahn's name
        """Handle the handshake. What follows it is parsed once the application has accepted the connection."""
        self._input.pause()
        return super().onConnect(request)

    def onOpen(self) -> None:  # noqa: N802 - autobahn's name
        """Called when the application has accepted the connection."""
        super().onOpen()
        self._input.resume()

    def announce(self, scope: Any) -> None:
        """Tell the application where the memory of large messages is counted."""
        self._input.announce(scope)

    def onMessageBegin(self, *args: Any) -> None:  # noqa: N802 - autobahn's name
        """Begin a message, whose fragments are joined as they arrive: each one kept by itself would have no bound."""
        super().onMessageBegin(*args)
        self.message_data = [bytearray()]

    def onMessageFrameData(self, payload: bytes) -> None:  # noqa: N802 - autobahn's name
        """Receive a piece of a fragment."""
        if not self.failedByMe:
            self.message_data[0] += payload

    def onMessageFrameEnd(self) -> None:  # noqa: N802 - autobahn's name
        """Handle the end of a fragment."""
        super().onMessageFrameEnd()
        if not self.current_frame.fin:
            self._input.frame_received(self.current_frame.length)

    def onMessage(self, *args: Any) -> None:  # noqa: N802 - autobahn's name
        """Queue a message for the application."""
        self._input.message_received()
        super().onMessage(*args)

    def sendMessage(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - autobahn's name
        """Send a message, whose size has no maximum here."""
        bound, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
        try:
            super().sendMessage(*args, **kwargs)
        finally:
            self.maxMessagePayloadSize = bound

    def message_bytes(self) -> int:
        """Return how much of an incomplete message is kept."""
        return int(self.message_data_total_length) if self.inside_message else 0

    # --- Clients that do not read ---------------------------------------------------------------------------------

    def onPing(self, payload: bytes) -> None:  # noqa: N802 - autobahn's name
        """Answer a ping. While the client does not read, none is answered."""
        self._input.frame_received()
        if unread_bytes(self.transport) <= MAX_UNREAD_BYTES:
            super().onPing(payload)

    def onPong(self, payload: bytes) -> None:  # noqa: N802 - autobahn's name
        """Handle a pong."""
        self._input.frame_received()
        super().onPong(payload)

    def _sendAutoPing(self) -> None:  # noqa: N802 - autobahn's name
        """Send a ping, unless the client has not read what was sent before."""
        if not unread_bytes(self.transport):
            super()._sendAutoPing()

    def fail(self, code: int, reason: str) -> None:
        """Close the connection."""
        self.sendClose(code, reason)
