"""What the hub is measured against: the official SDK's bare server, JSON and stateless; no keys, limits or records."""

from mcp.server import MCPServer

server = MCPServer("bare")


@server.tool()
async def echo(message: str) -> str:
    return f"hello {message}"


app = server.streamable_http_app(json_response=True, stateless_http=True)
