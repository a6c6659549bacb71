"""Clients that vanish: they stop in the middle of a request, never read, or leave in the middle of a stream."""

import asyncio
import json
import socket
import struct
import uuid
from urllib.parse import urlsplit

from tests.faults.load import HANDSHAKE, MODERN, modern_call, modern_meta
from tests.faults.wire import request

AT_ONCE = 100
HOST = "127.0.0.1"
NAME = "vanishing"
NO_LINGER = struct.pack("ii", 1, 0)  # closing sends RST instead of FIN


def crowd(urls: list[str], key: str, count: int) -> None:
    """Let `count` clients connect and vanish, with each kind of request in turn, some of them at the same time."""
    asyncio.run(_crowd(urls, key, count))


async def _crowd(urls: list[str], key: str, count: int) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with turns:
            await _one(urls[number % len(urls)], key, number)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))


async def _one(url: str, key: str, number: int) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        request_bytes = REQUESTS[number // 2 % len(REQUESTS)](parts.path, key)
        writer.write(request_bytes)
        await writer.drain()
        if number % 3:  # some do not even wait for the first byte
            async with asyncio.timeout(5):
                await reader.read(1 if number % 3 == 1 else 64)
    except (TimeoutError, ConnectionError):
        pass
    finally:
        if number % 4 < 2:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        writer.transport.abort() if number % 4 < 2 else writer.close()


def _call(path: str, key: str, tool: str, **arguments: object) -> bytes:
    body, headers = modern_call(key, tool, word=uuid.uuid4().hex, **arguments)
    return request("POST", path, HOST, headers, json.dumps(body).encode())


def _half(path: str, key: str) -> bytes:
    return _call(path, key, "quick")[:-20]


def _quick(path: str, key: str) -> bytes:
    return _call(path, key, "quick")


def _steps(path: str, key: str) -> bytes:
    return _call(path, key, "steps", n=100, pause=0.1)


def _toil(path: str, key: str) -> bytes:
    return _call(path, key, "toil", n=100, pause=0.1)


def _listen(path: str, key: str) -> bytes:
    method = "subscriptions/listen"
    params = {"notifications": {"toolsListChanged": True}, "_meta": modern_meta(NAME)}
    headers = {"Authorization": f"Bearer {key}", "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return request("POST", path, HOST, headers, json.dumps(body).encode())


def _initialize(path: str, key: str) -> bytes:
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": NAME, "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return request("POST", path, HOST, {"Authorization": f"Bearer {key}"}, json.dumps(body).encode())


REQUESTS = (_half, _quick, _steps, _listen, _initialize, _toil, _listen, _quick)
