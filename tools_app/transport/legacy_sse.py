"""HTTP+SSE, the transport of 2024-11-05: `GET …/sse` opens the stream, which names the URL to POST messages to.

The process that holds the stream answers; a POST may reach any process, which passes the message on through the
database. Clients that support Streamable HTTP use that.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlencode
from uuid import UUID

from channels.generic.http import AsyncHttpConsumer
from django.db import Error, OperationalError

from tools_app.calls import limits, sessions
from tools_app.calls.sessions import Negotiation
from tools_app.core.config import config
from tools_app.core.database import MAX_SECONDS, run_in_db_thread, run_in_db_thread_unbounded
from tools_app.core.notifications import publish
from tools_app.core.notifications.listener import TopicListener
from tools_app.protocol import jsonrpc, sse
from tools_app.protocol.errors import INVALID_REQUEST, OVER_LIMIT, RpcError
from tools_app.transport import sse_mailbox, state
from tools_app.transport.connection import Connection
from tools_app.transport.handler import RequestHandler
from tools_app.transport.incoming import Incoming
from tools_app.transport.request import AsgiRequest, Receive, Scope, Send, not_json
from tools_app.transport.responses import EventStream, Reply
from tools_app.transport.streams import KeepAliveTimer

log = logging.getLogger(__name__)

# How often messages are polled, in case their notification was lost.
POLL_SECONDS = 0.5
# How long a stream waits for a notification: the poll is for all streams.
NOTIFIED_SECONDS = 3600.0
# The maximum size of unprocessed messages that a client POSTed to this process, and the overhead added for each.
MAX_WAITING_BYTES = 1024 * 1024
BYTES_OF_MESSAGE = 64
SESSION_PARAMETER = "sessionId"
# The prefix of the ids of sessions with a stream. Clients never see it, so that no other session's id is valid here.
HAS_STREAM = "sse."
ACCEPTED = Reply(b"", 202)


class Inbox:
    """The messages that the client of one stream POSTed to any process, in order."""

    def __init__(self, session_id: UUID) -> None:
        self.session_id = session_id
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._fetching = asyncio.Lock()
        self._taking: asyncio.Task[list[bytes]] | None = None
        self._bytes = 0

    async def next(self) -> bytes | None:
        """Wait for and return the next message; None at the end."""
        message = await self._messages.get()
        if message is not None:
            self._bytes -= len(message) + BYTES_OF_MESSAGE
        return message

    def close(self, *_: object) -> None:
        """End the inbox after the messages that it already has."""
        self._messages.put_nowait(None)

    async def put(self, message: bytes) -> None:
        """Add a message of this process, after those that other processes stored before. Raises the database's error.

        Raises RpcError (429) while too many bytes wait.
        """
        if self._bytes > MAX_WAITING_BYTES:
            raise RpcError(OVER_LIMIT, "Too many messages wait: read the stream first.", status=429, retry_after=1)
        await self.fetch()
        self._add(message)

    def _add(self, message: bytes) -> None:
        self._bytes += len(message) + BYTES_OF_MESSAGE
        self._messages.put_nowait(message)

    async def fetch(self) -> None:
        """Add the messages that other processes stored in the database."""
        async with self._fetching:
            while messages := await self._take():
                for message in messages:
                    self._add(message)

    async def _take(self) -> list[bytes]:
        """Remove and return the next messages. Those of a caller that stopped waiting are for the one after it."""
        if self._taking is None:
            self._taking = asyncio.create_task(run_in_db_thread_unbounded(sse_mailbox.take, self.session_id))
        taking = self._taking
        await asyncio.wait([taking], timeout=MAX_SECONDS)
        if not taking.done():
            raise OperationalError("the database does not answer")
        self._taking = None
        return taking.result()

    async def keep_fetching(self, listener: TopicListener) -> None:
        """Fetch on each notification, and when the poll finds messages."""
        with listener.subscribe(sse_mailbox.topic(self.session_id)) as subscription, _poll.includes(self):
            while True:
                await self.try_to_fetch()
                await subscription.wait(NOTIFIED_SECONDS)

    async def try_to_fetch(self) -> None:
        """Fetch, or log why that is not possible now: the poll tries again."""
        try:
            await self.fetch()
        except Exception as problem:  # noqa: BLE001 - one stream must not stop the poll for all
            log.warning("Messages of a stream are fetched later: %s", problem)


class MailboxPoll:
    """Looks every POLL_SECONDS for messages whose notification was lost, with one query for all streams."""

    def __init__(self) -> None:
        self._inboxes: dict[UUID, Inbox] = {}
        self._polling: asyncio.Task[None] | None = None

    @contextmanager
    def includes(self, inbox: Inbox) -> Iterator[None]:
        """Look for messages of `inbox` for the duration of the block."""
        self._inboxes[inbox.session_id] = inbox
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            del self._inboxes[inbox.session_id]
            if not self._inboxes:
                self._polling.cancel()
                self._polling = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                waiting = await run_in_db_thread(sse_mailbox.waiting, list(self._inboxes))
            except Error as problem:
                log.warning("The database is unavailable, messages are fetched later: %s", problem)
                continue
            for session_id in waiting & self._inboxes.keys():
                if inbox := self._inboxes.get(session_id):
                    await inbox.try_to_fetch()


_poll = MailboxPoll()
_inboxes: dict[UUID, Inbox] = {}


class LegacySseConsumer(AsyncHttpConsumer):
    """Serves `/sse`."""

    channel_layer_alias = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one stream."""
        await SseStream(AsgiRequest(scope, receive), send, state.current()).run()


class LegacyMessageConsumer(AsyncHttpConsumer):
    """Serves `/message`."""

    channel_layer_alias = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept one message."""
        await SsePost(AsgiRequest(scope, receive), send, state.current()).run()


class SseStream(RequestHandler):
    """One stream: all messages from the hub to its client."""

    verbs = ("GET",)
    transport = "legacy_sse"

    async def answer(self) -> None:
        """Open a session, send the URL for messages, and answer them until the client disconnects."""
        self._check_not_stopping()
        if not self.http_request.accepted.only_stream:
            raise RpcError(INVALID_REQUEST, "Accept text/event-stream.", status=406)
        async with limits.stream_slot(self.principal):
            await self._stream()

    async def _stream(self) -> None:
        wire_id = await sessions.start(self.principal, Negotiation(), self.http_request.remote_address, HAS_STREAM)
        session = await sessions.find(self.principal, wire_id)
        assert session is not None, "it was made a moment ago"
        stream = EventStream(self._send)
        connection = Connection(
            self.authenticator.revalidate,
            self.http_request.remote_address,
            self.web,
            stream.write_one,
            self.authenticator.credential,
            identity=(self.authenticator.identity, self.http_request.remote_address),
            # Each message was counted as a POST request.
            counted=True,
        )
        inbox = _inboxes[session.id] = Inbox(session.id)
        keeping = asyncio.create_task(_keep_alive(stream, self.web.keep_alive))
        try:
            await stream.begin(self.cors)
            await stream.send(sse.endpoint(self._address(wire_id.removeprefix(HAS_STREAM))))
            await connection.serve(self._messages(inbox), session)
            await stream.end()
        finally:
            keeping.cancel()
            _inboxes.pop(session.id, None)
            with suppress(Error):
                await run_in_db_thread(sse_mailbox.forget, session.id)

    def _address(self, wire_id: str) -> str:
        """Return the URL to POST to. It repeats a key from the stream's URL, because the client sends no other."""
        slug = self.http_request.tenant_slug
        parameters = {SESSION_PARAMETER: wire_id}
        if self.authenticator.credential is not None and self.authenticator.credential.from_query:
            parameters["api_key"] = self.authenticator.credential.key
        return f"{f'/t/{slug}' if slug else ''}/message?{urlencode(parameters)}"

    async def _messages(self, inbox: Inbox) -> AsyncIterator[Incoming]:
        """Yield the client's messages in order, until it disconnects."""
        fetching = asyncio.create_task(inbox.keep_fetching(self.web.listener))
        leaving = asyncio.create_task(self.http_request.disconnected())
        leaving.add_done_callback(inbox.close)
        try:
            while (message := await inbox.next()) is not None:
                yield Incoming(message)
                # It is not kept until the next one arrives.
                del message
        finally:
            fetching.cancel()
            leaving.cancel()


async def _keep_alive(stream: EventStream, timer: KeepAliveTimer) -> None:
    """Send keep-alive comments to proxies and clients, even while there are messages."""
    due = asyncio.Event()
    call = due.set
    timer.note_activity(call)
    try:
        while True:
            await due.wait()
            due.clear()
            await stream.keep_alive()
    finally:
        timer.remove(call)


class SsePost(RequestHandler):
    """One message to a stream in any process."""

    verbs = ("POST",)
    transport = "legacy_sse"

    async def answer(self) -> None:
        """Accept the message, whose response is sent on the stream."""
        self._check_not_stopping()
        if not self.http_request.head.is_json:
            raise not_json()
        session = await sessions.find(self.principal, HAS_STREAM + self.http_request.parameter(SESSION_PARAMETER))
        if session is None:
            raise RpcError(INVALID_REQUEST, "Session not found.", status=404)
        body = await self.http_request.read(config.MCPHUB_MAX_BODY_BYTES)
        jsonrpc.decode(body)
        inbox = _inboxes.get(session.id)
        if inbox is not None:
            await inbox.put(body)
        else:
            if not await run_in_db_thread(sse_mailbox.put, session.id, body):
                raise RpcError(OVER_LIMIT, "Too many messages wait: read the stream first.", status=429, retry_after=1)
            publish.notify(sse_mailbox.topic(session.id))
        await self.send_reply(ACCEPTED)
