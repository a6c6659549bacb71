"""A minimal HTTP/1.1 client on one persistent connection. It tells broken connections from responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Message = dict[str, Any]
BOTH = "application/json, text/event-stream"
LARGEST = 2**22
NO_CONTENT = 204


class ConnectionBroken(Exception):
    """The connection ended before the response was complete.

    `may_reconnect`: no byte of the response came, and the connection was reused or could not be made at all. HTTP
    clients reconnect then.
    """

    def __init__(self, reason: str, *, may_reconnect: bool) -> None:
        super().__init__(reason)
        self.may_reconnect = may_reconnect


@dataclass(frozen=True)
class Answer:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    messages: list[Message] = field(default_factory=list)


class HttpConnection:
    """A client's connection to one web process, opened when it is needed."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname or "", parts.port or 0, parts.path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(
        self, body: Any, headers: Mapping[str, str], on_message: Callable[[Message], None] = lambda _: None
    ) -> Answer:
        """Send a message and read the response. `on_message` gets each event. Raises ConnectionBroken."""
        return await self.send("POST", headers, json.dumps(body).encode(), on_message)

    async def send(
        self,
        verb: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        on_message: Callable[[Message], None] = lambda _: None,
    ) -> Answer:
        """The same for any verb."""
        is_reused = self._streams is not None and not self._streams[0].at_eof()
        if not is_reused:
            self.close()
        has_head = False
        try:
            reader, writer = self._streams or await self._connect()
            writer.write(request(verb, self.path, self.host, headers, body))
            await writer.drain()
            status, fields = await head(reader)
            has_head = True
            messages = [message async for message in _messages(reader, fields, on_message)]
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as problem:
            connected = self._streams is not None
            self.close()
            raise ConnectionBroken(
                repr(problem), may_reconnect=not has_head and (is_reused or not connected)
            ) from problem
        except BaseException:
            self.close()
            raise
        if status == NO_CONTENT or fields.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, fields, messages)

    def close(self) -> None:
        """Close the connection if there is one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._streams = await asyncio.open_connection(self.host, self.port, limit=LARGEST)
        return self._streams


def request(verb: str, path: str, host: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """The bytes of a request."""
    fields = {"Host": host, "Accept": BOTH, "Content-Type": "application/json", **headers}
    lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The status of a response and its headers, by lower-case names."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split(" ")[1]), {name.lower(): value for name, value in fields.items()}


async def _messages(
    reader: asyncio.StreamReader, fields: Mapping[str, str], on_message: Callable[[Message], None]
) -> AsyncIterator[Message]:
    streamed = fields.get("content-type", "").startswith("text/event-stream")
    rest = b""
    async for part in _parts(reader, fields):
        rest += part
        while streamed and b"\n\n" in rest:
            event, _, rest = rest.partition(b"\n\n")
            for line in event.split(b"\n"):
                if line.startswith(b"data: {"):
                    message = json.loads(line[6:])
                    on_message(message)
                    yield message
    if rest and not streamed and fields.get("content-type", "").startswith("application/json"):
        yield json.loads(rest)


async def _parts(reader: asyncio.StreamReader, fields: Mapping[str, str]) -> AsyncIterator[bytes]:
    if fields.get("transfer-encoding", "").lower() == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    elif "content-length" in fields:
        yield await reader.readexactly(int(fields["content-length"]))
