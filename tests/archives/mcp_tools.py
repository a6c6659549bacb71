"""A tool that takes longer than it may."""

import asyncio

from tools_app.toolkit import tool


@tool(timeout=0.5)
async def slow() -> str:
    """Take long."""
    await asyncio.sleep(60)
    return "late"
