"""A tool that reports progress, run as a background task by FastMCP with Docket, in an environment of its own.

Its worker is in the server's process; FASTMCP_DOCKET_URL names the Redis between the two.
"""

from fastmcp import FastMCP
from fastmcp.dependencies import Progress
from fastmcp_tasks import TasksExtension

server = FastMCP("tasks")
server.add_extension(TasksExtension())


@server.tool(task=True)
async def report_as_task(steps: int, progress: Progress = Progress()) -> str:  # noqa: B008 - how FastMCP injects it
    """Report progress after each step, without a pause."""
    await progress.set_total(steps)
    for step in range(1, steps + 1):
        await progress.increment()
        await progress.set_message(f"step {step}")
    return f"{steps} steps"


app = server.http_app(json_response=True, stateless_http=True)
