"""The tools that the benchmarks call. `MCPHUB_APPS=benchmarks.tools` installs them in a hub."""

from benchmarks.servers.look_up import LOOK_UPS, look_up
from tools_app.toolkit import ToolContext, tool


@tool(read_only=True)
async def report(steps: int, context: ToolContext) -> str:
    """Report progress after each step, without a pause.

    :param steps: How many steps to take.
    """
    return _reported(steps, context)


@tool(read_only=True, background=True)
def report_in_worker(steps: int, context: ToolContext) -> str:
    """The same in a worker.

    :param steps: How many steps to take.
    """
    return _reported(steps, context)


@tool(read_only=True, background=True, task="required")
def report_as_task(steps: int, context: ToolContext) -> str:
    """The same as a task.

    :param steps: How many steps to take.
    """
    return _reported(steps, context)


def _reported(steps: int, context: ToolContext) -> str:
    for step in range(1, steps + 1):
        context.progress(step, steps, f"step {step}")
    return f"{steps} steps"


for _name in LOOK_UPS:
    tool(name=_name, read_only=True)(look_up)
