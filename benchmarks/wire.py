"""A small asynchronous HTTP client: it can hold a thousand open streams, and notes when each message comes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from benchmarks.processes import HOST
from benchmarks.workloads import Request

MAX_LINE = 1 << 20


class Refused(Exception):
    """The server answered with another status than 200."""


@dataclass(frozen=True)
class ReceivedMessage:
    """A message of an event stream, and when it came, by the monotonic clock."""

    message: dict[str, Any]
    at: float


class Connection:
    """One connection. Requests on it follow one another, each after the answer before it is read to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connect."""
        return cls(*await asyncio.open_connection(HOST, port, limit=MAX_LINE))

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return

    async def send(self, verb: str, request: Request) -> dict[str, str]:
        """Send a request to the endpoint; the headers of its answer. Raises Refused."""
        body = request.body.encode()
        fields = {"Host": HOST, "Content-Length": str(len(body)), **request.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._writer.write(f"{verb} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        status = (await self._line()).split(" ", 2)[1]
        headers = {}
        while line := await self._line():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if status != "200":
            raise Refused(f"{verb}: {status} {b''.join([part async for part in self._parts(headers)])!r}")
        return headers

    async def messages(self, headers: dict[str, str]) -> AsyncIterator[ReceivedMessage]:
        """The messages of an answer as they come."""
        buffer = b""
        async for part in self._parts(headers):
            received_at = time.monotonic()
            *lines, buffer = (buffer + part).splitlines(keepends=True)
            if buffer.endswith((b"\n", b"}")):
                lines.append(buffer)
                buffer = b""
            for line in lines:
                text = line.removeprefix(b"data: ")
                if text.startswith(b"{"):
                    yield ReceivedMessage(json.loads(text), received_at)

    async def _parts(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            yield await self._reader.readexactly(int(headers.get("content-length", "0")))
            return
        while size := int(await self._line(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._line()

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the server hung up")
        return line.decode().rstrip("\r\n")
