"""Transports on which all messages share one stream: requests are matched with their responses by id.

HTTP+SSE of revision 2024-11-05 is one of them: a stream has all that the upstream says, and names a URL for requests.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tools_app.core.http.urls import InvalidUrl, Url
from tools_app.upstreams.client import Answer, Listen, Message, Transport, answer_unsupported, ignore
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.http import HttpTransport, parsed

ENDPOINT_SECONDS: Final = 15.0
MAX_ENDPOINT_LENGTH: Final = 4096


@dataclass
class PendingRequest:
    """A request without its response yet."""

    response: "asyncio.Future[Message]"
    listen: Listen
    answer: Answer


class DuplexTransport(Transport):
    """The base of such transports. Subclasses open the stream, write to it, and pass on what they read."""

    is_duplex = True
    openings = 1
    is_followed = True

    def __init__(self) -> None:
        super().__init__()
        self._pending: dict[int, PendingRequest] = {}
        self._on_message: Listen = ignore
        self._opening = asyncio.Lock()
        self._is_open = False

    def attach(self, listen: Listen) -> None:
        """Set the listener of notifications that belong to no request."""
        self._on_message = listen

    async def roundtrip(self, message: Message, headers: Mapping[str, str], listen: Listen, answer: Answer) -> Message:
        """Send a request and return its response. Raises UpstreamFailed."""
        await self._ensure_open()
        request_id = message["id"]
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = PendingRequest(response, listen, answer)
        try:
            await self._write(message, headers)
            return await response
        finally:
            self._pending.pop(request_id, None)

    async def post(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send a notification or a response. Raises UpstreamFailed."""
        await self._ensure_open()
        await self._write(message, headers)

    async def close(self) -> None:
        """Close the stream."""
        for task in list(self._answering):
            task.cancel()
        self.ended("The connection was closed.")
        await self._shut()

    async def _open(self) -> None:
        """Open the stream."""
        raise NotImplementedError

    async def _write(self, message: Message, headers: Mapping[str, str]) -> None:
        """Write one message."""
        raise NotImplementedError

    async def _shut(self) -> None:
        """Release the stream."""
        raise NotImplementedError

    def received(self, message: Message) -> None:
        """Handle a message of the upstream."""
        if "method" not in message:
            pending = self._pending.get(message["id"]) if isinstance(message.get("id"), int) else None
            if pending is not None and not pending.response.done():
                pending.response.set_result(message)
        elif "id" in message:
            # It belongs to the only running request, if there is one.
            running = [] if self.refuses_questions else list(self._pending.values())
            answer = running[0].answer if len(running) == 1 else answer_unsupported
            self.answer_later(message, answer, lambda response: self._write(response, {}))
        else:
            self._notify(message)

    def ended(self, message: str, cause: str = "") -> None:
        """Fail all requests without a response: the stream has ended, and their outcome is unknown."""
        self.is_closed, self.is_followed = True, False
        for pending in self._pending.values():
            if not pending.response.done():
                pending.response.set_exception(UpstreamFailed(message, cause))

    async def _ensure_open(self) -> None:
        async with self._opening:
            if self.is_closed:
                raise UpstreamFailed("The connection to the upstream has ended.", sent=False)
            if not self._is_open:
                await self._open()
                self._is_open = True

    def _notify(self, message: Message) -> None:
        """Pass a notification to its request: by its token, or because no other request is running."""
        params = message.get("params")
        token = params.get("progressToken") if isinstance(params, dict) else None
        if isinstance(token, int) and token in self._pending:
            self._pending[token].listen(message)
        elif message["method"] == "notifications/message":
            if len(self._pending) == 1:
                next(iter(self._pending.values())).listen(message)
        else:
            self._on_message(message)


class LegacySseTransport(DuplexTransport):
    """HTTP+SSE. `http` opens the stream, and sends the requests."""

    def __init__(self, url: Url, http: HttpTransport) -> None:
        super().__init__()
        self._url = url
        self._http = http
        self._endpoint: asyncio.Future[Url] | None = None
        self._reader: asyncio.Task[None] | None = None

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        self._endpoint = loop.create_future()
        self._reader = loop.create_task(self._read())
        try:
            async with asyncio.timeout(ENDPOINT_SECONDS):
                await asyncio.shield(self._endpoint)
        except TimeoutError as error:
            raise UpstreamFailed("The upstream does not say where it takes requests.", sent=False) from error

    async def _write(self, message: Message, headers: Mapping[str, str]) -> None:
        assert self._endpoint is not None
        await self._http.post(message, headers, self._endpoint.result())

    async def _shut(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
        await self._http.close()

    async def _read(self) -> None:
        assert self._endpoint is not None
        failure = UpstreamFailed("The upstream closed its stream. The call may have run.")
        try:
            async with self._http.open_legacy_stream() as response:
                parser = self._http.new_parser()
                async for chunk in response:
                    for event in parser.feed(chunk):
                        if event.kind == "message" and event.data:
                            self.received(await parsed(event.data))
                        elif event.kind == "endpoint" and not self._endpoint.done():
                            self._endpoint.set_result(self._post_url(event.data))
        except UpstreamFailed as error:
            failure = error
        finally:
            if not self._endpoint.done():
                self._endpoint.set_exception(failure)
            self.ended(failure.message, failure.cause)

    def _post_url(self, data: bytes) -> Url:
        """Return the URL for requests. Raises UpstreamFailed for one of another server, which would get the secrets."""
        try:
            url = self._url.joined(data[:MAX_ENDPOINT_LENGTH].decode("ascii", "replace"))
        except InvalidUrl as error:
            raise UpstreamFailed(f"The upstream names an invalid URL for requests: {error}.") from error
        if url.origin != self._url.origin:
            raise UpstreamFailed("The upstream names another server for requests.")
        return url
