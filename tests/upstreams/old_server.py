"""A server of the official SDK on HTTP+SSE, in a process of its own: it says its port and serves until it is killed."""

import asyncio
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("old")


@server.tool()
async def count(steps: int, context: Context) -> str:
    for step in range(steps):
        await context.report_progress(step + 1, steps)
    return "counted"


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(server.sse_app(), log_level="critical", ws="none")
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))
