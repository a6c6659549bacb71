"""The tool of which a list has a hundred, the same for every server."""

from typing import Literal

LISTED = 100
LOOK_UPS = [f"look_up_{number:03}" for number in range(1, LISTED + 1)]


async def look_up(query: str, shelf: int = 1, order: Literal["newest", "oldest"] = "newest") -> str:
    """Look something up: one of many tools like it, which only the list needs."""
    return f"{query} on shelf {shelf}, {order} first"
