"""A tool that hears no cancellation."""

import time

from tools_app.toolkit import tool


@tool(background=True, timeout=120)
def stubborn(seconds: float) -> str:
    """Sleep through everything."""
    time.sleep(seconds)
    return "slept"
