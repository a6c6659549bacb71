"""How the transports end: calls finish or are recorded as interrupted, and streams close properly."""


async def drain(seconds: float) -> None:
    """Take no more calls and wait at most `seconds` for those that run; then interrupt them."""
