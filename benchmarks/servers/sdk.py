"""What the hub is measured against: servers of the official SDK, bare, without keys, limits or records."""

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from benchmarks.servers.look_up import LOOK_UPS, look_up


def _server() -> MCPServer:
    """Each application needs a server of its own: a session manager runs once."""
    server = MCPServer("bare", log_level="WARNING")

    @server.tool()
    async def echo(message: str) -> str:
        """Greet back."""
        return f"hello {message}"

    @server.tool()
    async def report(steps: int, ctx: Context) -> str:
        """Report progress after each step, without a pause."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
        return f"{steps} steps"

    return server


def _librarian() -> MCPServer:
    server = MCPServer("many tools", log_level="WARNING")
    for name in LOOK_UPS:
        server.add_tool(look_up, name=name)
    return server


plain = _server().streamable_http_app(json_response=True, stateless_http=True)
sessions = _server().streamable_http_app(json_response=True)
streaming = _server().streamable_http_app(stateless_http=True)
many = _librarian().streamable_http_app(json_response=True, stateless_http=True)
