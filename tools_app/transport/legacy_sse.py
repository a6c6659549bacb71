"""HTTP+SSE, the transport of 2024-11-05: `GET …/sse` opens the stream, which names where to POST messages.

The process that holds the stream answers; a POST may reach any process, which hands the message over through the
store. Clients that know Streamable HTTP use that.
"""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlencode
from uuid import UUID

from channels.generic.http import AsyncHttpConsumer

from tools_app.auth import relay, sessions
from tools_app.auth.sessions import Agreement, SessionFacts
from tools_app.events import publish
from tools_app.events.switchboard import Switchboard
from tools_app.models.bridge import in_store
from tools_app.models.config import config
from tools_app.protocol import jsonrpc, sse
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.transport import state
from tools_app.transport.connection import Connection
from tools_app.transport.incoming import Incoming, Receive, Scope, Send
from tools_app.transport.responses import EventStream, Reply, send_reply
from tools_app.transport.turn import Turn

# A message that found its stream in the same process needs no doorbell; one that did not must be found soon.
POLL_SECONDS = 0.5
SESSION_PARAMETER = "sessionId"
ACCEPTED = Reply(b"", 202)

_inboxes: dict[UUID, "asyncio.Queue[bytes]"] = {}


class LegacySseConsumer(AsyncHttpConsumer):
    """Answers `/sse`."""

    channel_layer_alias = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one stream from its first byte to its last."""
        await SseStream(Incoming(scope, receive), send, state.current()).run()


class LegacyMessageConsumer(AsyncHttpConsumer):
    """Answers `/message`."""

    channel_layer_alias = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one message."""
        await SsePost(Incoming(scope, receive), send, state.current()).run()


class SseStream(Turn):
    """One stream: everything that the hub says to its client."""

    verbs = ("GET",)

    async def answer(self) -> None:
        """Open a session, say where to send messages, and answer them until the client leaves."""
        if not self.incoming.accepts_stream:
            raise RpcError(INVALID_REQUEST, "Accept text/event-stream.", status=406)
        wire_id = await sessions.start(self.principal, Agreement(), self.incoming.remote_address)
        session = await sessions.find(self.principal, wire_id)
        assert session is not None, "it was made a moment ago"
        _inboxes[session.id] = asyncio.Queue()
        stream = EventStream(self._send)
        connection = Connection(self.who, self.incoming.remote_address, self.web, stream.write_one)
        keeping = asyncio.create_task(_keep_alive(stream))
        try:
            await stream.begin(self.cors)
            await stream.say(sse.endpoint(self._address(wire_id)))
            await connection.serve(self._messages(session), session)
            await stream.end()
        finally:
            keeping.cancel()
            _inboxes.pop(session.id, None)
            await in_store(relay.forget, session.id)

    def _address(self, wire_id: str) -> str:
        """Where to POST to. A key that stood in the URL has to stand in this one too: the client sends no other."""
        slug = self.incoming.tenant_slug
        parameters = {SESSION_PARAMETER: wire_id}
        if self.credential is not None and self.credential.from_query:
            parameters["api_key"] = self.credential.key
        return f"{f'/t/{slug}' if slug else ''}/message?{urlencode(parameters)}"

    async def _messages(self, session: SessionFacts) -> AsyncIterator[bytes]:
        """What the client POSTs, in its order, until it leaves."""
        inbox = _inboxes[session.id]
        relaying = asyncio.create_task(_relayed(session.id, inbox, self.web.switchboard))
        leaving = asyncio.create_task(self.incoming.disconnected())
        try:
            while True:
                arriving = asyncio.create_task(inbox.get())
                await asyncio.wait({arriving, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not arriving.done():
                    arriving.cancel()
                    return
                yield arriving.result()
        finally:
            relaying.cancel()
            leaving.cancel()


async def _keep_alive(stream: EventStream) -> None:
    """Show proxies that the stream lives, whether or not there is something to say."""
    while True:
        await asyncio.sleep(config.MCPHUB_KEEPALIVE_SECONDS)
        await stream.keep_alive()


async def _relayed(session_id: UUID, inbox: "asyncio.Queue[bytes]", switchboard: Switchboard) -> None:
    """Fetch what other processes took for this stream."""
    with switchboard.watching(relay.topic(session_id)) as watch:
        while True:
            for message in await in_store(relay.take, session_id):
                inbox.put_nowait(message)
            await watch.wait(POLL_SECONDS)


class SsePost(Turn):
    """One message to a stream, in whichever process that is."""

    verbs = ("POST",)

    async def answer(self) -> None:
        """Take the message: its answer comes on the stream."""
        self.incoming.check_content_type()
        session = await sessions.find(self.principal, self.incoming.parameter(SESSION_PARAMETER))
        if session is None:
            raise RpcError(INVALID_REQUEST, "Session not found.", status=404)
        body = await self.incoming.body()
        jsonrpc.decode(body, config.MCPHUB_MAX_JSON_DEPTH)
        inbox = _inboxes.get(session.id)
        if inbox is not None:
            inbox.put_nowait(body)
        else:
            await in_store(relay.put, session.id, body)
            publish.ring(relay.topic(session.id))
        await send_reply(self._send, ACCEPTED, self.cors)
