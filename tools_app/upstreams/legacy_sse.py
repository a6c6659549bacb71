"""The HTTP+SSE transport of revision 2024-11-05: one stream with all that the upstream says, and a URL for requests."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tools_app.core.http.urls import InvalidUrl, Url
from tools_app.upstreams.client import Message
from tools_app.upstreams.duplex import DuplexTransport
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.http import HttpTransport, parsed
from tools_app.upstreams.sse import StreamEvent

ENDPOINT_SECONDS: Final = 15.0
MAX_ENDPOINT_LENGTH: Final = 4096


class LegacySseTransport(DuplexTransport):
    """The stream of one upstream. `http` opens it, and sends the requests."""

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
        except TimeoutError as problem:
            raise UpstreamFailed("The upstream does not say where it takes requests.", sent=False) from problem

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
        problem: UpstreamFailed | None = None
        try:
            async with self._http.open_legacy_stream() as response:
                parser = self._http.new_parser()
                async for chunk in response:
                    for event in parser.feed(chunk):
                        await self._handle_event(event)
        except UpstreamFailed as failure:
            problem = failure
        finally:
            problem = problem or UpstreamFailed("The upstream closed its stream. The call may have run.")
            if self._endpoint is not None and not self._endpoint.done():
                self._endpoint.set_exception(problem)
            self.ended(problem.message, problem.cause)

    async def _handle_event(self, event: StreamEvent) -> None:
        assert self._endpoint is not None
        if event.kind == "message" and event.data:
            self.received(await parsed(event.data))
        elif event.kind == "endpoint" and not self._endpoint.done():
            self._endpoint.set_result(self._post_url(event.data))

    def _post_url(self, data: bytes) -> Url:
        """Return the URL for requests. Raises UpstreamFailed for one of another server, which would get the secrets."""
        try:
            url = self._url.joined(data[:MAX_ENDPOINT_LENGTH].decode("ascii", "replace"))
        except InvalidUrl as problem:
            raise UpstreamFailed(f"The upstream names an invalid URL for requests: {problem}.") from problem
        if url.origin != self._url.origin:
            raise UpstreamFailed("The upstream names another server for requests.")
        return url
