"""Holding back an answer until its client has read what was sent before: Daphne would keep all of it in memory."""

import asyncio
from typing import Any


class _Room:
    """Told by Twisted when there is room again, or when nobody will ever read (`IPushProducer`)."""

    def __init__(self) -> None:
        self._there_is = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        await self._there_is

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """What is said already is said."""

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        if not self._there_is.done():
            self._there_is.set_result(None)

    stopProducing = resumeProducing  # noqa: N815 - Twisted's name


async def room(request: Any) -> None:
    """Wait until the connection of an HTTP request takes more."""
    channel = getattr(request, "channel", None)  # it has none once it is answered
    if channel is None or not channel._waitingForTransport:  # noqa: SLF001 - nothing else tells
        return
    there = _Room()
    channel.registerProducer(there, streaming=True)
    try:
        await there.wait()
    finally:
        channel.unregisterProducer()
