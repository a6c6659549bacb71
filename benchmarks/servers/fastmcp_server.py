"""The same tools on FastMCP, which brings its own environment."""

from fastmcp import Context, FastMCP

from benchmarks.servers.look_up import LOOK_UPS, look_up


def _server() -> FastMCP:
    server = FastMCP("bare")

    @server.tool
    async def echo(message: str) -> str:
        """Greet back."""
        return f"hello {message}"

    @server.tool
    async def report(steps: int, ctx: Context) -> str:
        """Report progress after each step, without a pause."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
        return f"{steps} steps"

    return server


def _librarian() -> FastMCP:
    server = FastMCP("many tools")
    for name in LOOK_UPS:
        server.tool(look_up, name=name)
    return server


plain = _server().http_app(json_response=True, stateless_http=True)
sessions = _server().http_app(json_response=True)
streaming = _server().http_app(stateless_http=True)
many = _librarian().http_app(json_response=True, stateless_http=True)
