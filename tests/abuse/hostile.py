"""A hostile upstream, in its own process: `python hostile.py PORT`, until its stdin is closed.

Each tool is one kind of attack. What it sends is bounded by the duration of a connection.
"""

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

TOOLS = ("progress", "logs", "no_end_of_line", "large_result", "many_pieces", "questions", "silence")
MEGABYTE = 1024 * 1024
# Longer than an attack lasts.
SECONDS = 20.0
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def event(**message: Any) -> bytes:
    return b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n"


def note(method: str, **params: Any) -> bytes:
    return event(method=method, params=params)


def question(number: int) -> bytes:
    params = {"message": "q" * 10_000, "requestedSchema": SCHEMA}
    return event(id=f"q{number}", method="elicitation/create", params=params)


async def flood(writer: asyncio.StreamWriter, piece: bytes) -> None:
    """Send the same data until the connection closes."""
    while True:
        writer.write(piece)
        await writer.drain()


async def harm(tool: str, number: Any, token: Any, writer: asyncio.StreamWriter) -> None:
    """Respond to a tool call with the tool's attack."""
    match tool:
        case "large_result":
            text = json.dumps({"content": [{"type": "text", "text": "x" * (15 * MEGABYTE)}]})
            answer(writer, f'{{"jsonrpc":"2.0","id":{json.dumps(number)},"result":{text}}}'.encode())
        case "many_pieces":
            content = ",".join(['{"type":"text","text":""}'] * 200_000)
            text = f'{{"jsonrpc":"2.0","id":{json.dumps(number)},"result":{{"content":[{content}]}}}}'
            answer(writer, text.encode())
        case "silence":
            await asyncio.sleep(SECONDS)
        case "progress":
            writer.write(SSE)
            await flood(writer, note("notifications/progress", progressToken=token, progress=1, message="x") * 200)
        case "logs":
            writer.write(SSE)
            await flood(writer, note("notifications/message", level="error", data="y" * 100_000))
        case "no_end_of_line":
            writer.write(SSE)
            await flood(writer, b"data: " + b"z" * 65_536)
        case "questions":
            writer.write(SSE + b"".join(map(question, range(100))))
            await asyncio.sleep(SECONDS)


def answer(writer: asyncio.StreamWriter, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


def result(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            server = {"name": "hostile", "version": "1"}
            capabilities = {"tools": {}, "logging": {}}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": server}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    return {}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Handle the requests of one connection."""
    with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(SECONDS):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                if not head.startswith(b"post"):
                    writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
                    continue
                message = json.loads(body)
                if "id" not in message or "method" not in message:
                    writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                elif message["method"] == "server/discover":
                    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                elif message["method"] == "tools/call":
                    params = message["params"]
                    token = params.get("_meta", {}).get("progressToken")
                    await harm(params["name"], message["id"], token, writer)
                else:
                    response = {"jsonrpc": "2.0", "id": message["id"], "result": result(message)}
                    answer(writer, json.dumps(response).encode())
    writer.close()


async def main(port: int) -> None:
    """Serve until stdin is closed."""
    async with await asyncio.start_server(serve, "127.0.0.1", port, limit=16 * MEGABYTE):
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
