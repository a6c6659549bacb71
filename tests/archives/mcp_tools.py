"""A tool that exceeds its timeout."""

import asyncio

from tools_app.toolkit import tool


@tool(timeout=0.5)
async def slow() -> str:
    """Run for a long time."""
    await asyncio.sleep(60)
    return "late"
