"""HTTP+SSE, the transport of 2024-11-05: `GET …/sse` opens the stream, which names where to POST messages.

The process that holds the stream answers; a POST may reach any process, which hands the message over through the
store. Clients that know Streamable HTTP use that.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlencode
from uuid import UUID

from channels.generic.http import AsyncHttpConsumer
from django.db import Error

from tools_app.auth import relay, sessions
from tools_app.auth.sessions import Agreement
from tools_app.events import publish
from tools_app.events.switchboard import Switchboard
from tools_app.execution import limiting
from tools_app.models.bridge import in_store
from tools_app.models.config import config
from tools_app.protocol import jsonrpc, sse
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.transport import state
from tools_app.transport.connection import Connection
from tools_app.transport.incoming import Incoming, Receive, Scope, Send
from tools_app.transport.responses import EventStream, Reply, send_reply
from tools_app.transport.turn import Turn

log = logging.getLogger(__name__)

# How soon a message is found whose doorbell was not heard.
POLL_SECONDS = 0.5
SESSION_PARAMETER = "sessionId"
# Begins the id of a session that has a stream, and is told to nobody: no other session's id is good for a POST here.
HAS_STREAM = "sse."
ACCEPTED = Reply(b"", 202)


class Inbox:
    """What the client of one stream POSTed, in its order, whichever processes took it."""

    def __init__(self, session_id: UUID) -> None:
        self._session_id = session_id
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._fetching = asyncio.Lock()

    async def next(self) -> bytes | None:
        """The next message, once there is one; None at the end."""
        return await self._messages.get()

    def close(self, *_: object) -> None:
        """Let there be no more messages."""
        self._messages.put_nowait(None)

    async def put(self, message: bytes) -> None:
        """Take a message of this process: what another one took before comes first. Raises the store's error."""
        await self.fetch()
        self._messages.put_nowait(message)

    async def fetch(self) -> None:
        """Take what other processes left in the store."""
        async with self._fetching:
            while messages := await in_store(relay.take, self._session_id):
                for message in messages:
                    self._messages.put_nowait(message)

    async def keep_fetching(self, switchboard: Switchboard) -> None:
        """Do so whenever the doorbell rings, and every POLL_SECONDS in any case."""
        with switchboard.watching(relay.topic(self._session_id)) as watch:
            while True:
                try:
                    await self.fetch()
                except Error as problem:
                    log.warning("The store is away, messages are fetched later: %s", problem)
                await watch.wait(POLL_SECONDS)


_inboxes: dict[UUID, Inbox] = {}


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
    transport = "legacy_sse"

    async def answer(self) -> None:
        """Open a session, say where to send messages, and answer them until the client leaves."""
        self._check_not_stopping()
        if not self.incoming.accepts_stream:
            raise RpcError(INVALID_REQUEST, "Accept text/event-stream.", status=406)
        async with limiting.stream_for(self.principal):
            await self._stream()

    async def _stream(self) -> None:
        wire_id = await sessions.start(self.principal, Agreement(), self.incoming.remote_address, HAS_STREAM)
        session = await sessions.find(self.principal, wire_id)
        assert session is not None, "it was made a moment ago"
        stream = EventStream(self._send)
        connection = Connection(
            self.visitor.still,
            self.incoming.remote_address,
            self.web,
            stream.write_one,
            self.visitor.credential,
            # Each message was one of a POST.
            counted=True,
        )
        inbox = _inboxes[session.id] = Inbox(session.id)
        keeping = asyncio.create_task(_keep_alive(stream))
        try:
            await stream.begin(self.cors)
            await stream.say(sse.endpoint(self._address(wire_id.removeprefix(HAS_STREAM))))
            await connection.serve(self._messages(inbox), session)
            await stream.end()
        finally:
            keeping.cancel()
            _inboxes.pop(session.id, None)
            with suppress(Error):
                await in_store(relay.forget, session.id)

    def _address(self, wire_id: str) -> str:
        """Where to POST to. A key that stood in the URL has to stand in this one too: the client sends no other."""
        slug = self.incoming.tenant_slug
        parameters = {SESSION_PARAMETER: wire_id}
        if self.visitor.credential is not None and self.visitor.credential.from_query:
            parameters["api_key"] = self.visitor.credential.key
        return f"{f'/t/{slug}' if slug else ''}/message?{urlencode(parameters)}"

    async def _messages(self, inbox: Inbox) -> AsyncIterator[bytes]:
        """What the client POSTs, in its order, until it leaves."""
        fetching = asyncio.create_task(inbox.keep_fetching(self.web.switchboard))
        leaving = asyncio.create_task(self.incoming.disconnected())
        leaving.add_done_callback(inbox.close)
        try:
            while (message := await inbox.next()) is not None:
                yield message
        finally:
            fetching.cancel()
            leaving.cancel()


async def _keep_alive(stream: EventStream) -> None:
    """Show proxies that the stream lives, whether or not there is something to say."""
    while True:
        await asyncio.sleep(config.MCPHUB_KEEPALIVE_SECONDS)
        await stream.keep_alive()


class SsePost(Turn):
    """One message to a stream, in whichever process that is."""

    verbs = ("POST",)
    transport = "legacy_sse"

    async def answer(self) -> None:
        """Take the message: its answer comes on the stream."""
        self._check_not_stopping()
        self.incoming.check_content_type()
        session = await sessions.find(self.principal, HAS_STREAM + self.incoming.parameter(SESSION_PARAMETER))
        if session is None:
            raise RpcError(INVALID_REQUEST, "Session not found.", status=404)
        body = await self.incoming.body()
        jsonrpc.decode(body, config.MCPHUB_MAX_JSON_DEPTH)
        inbox = _inboxes.get(session.id)
        if inbox is not None:
            await inbox.put(body)
        else:
            await in_store(relay.put, session.id, body)
            publish.ring(relay.topic(session.id))
        await send_reply(self._send, ACCEPTED, self.cors)
