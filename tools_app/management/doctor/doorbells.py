"""The channel layer, all the way round: a doorbell is rung as processes ring it, and heard as they hear it."""

import asyncio
from collections.abc import Iterator
from time import perf_counter
from uuid import uuid4

from tools_app.events import publish
from tools_app.events.switchboard import Switchboard
from tools_app.management.doctor.findings import Finding, judged, problem

SECONDS = 3.0
AGAIN_SECONDS = 0.2
SLOW_SECONDS = 0.1


def round_trip() -> Iterator[Finding]:
    """Ring, and wait to hear it."""
    try:
        taken = asyncio.run(_rung_and_heard())
    finally:
        publish.shutdown()
    if taken is None:
        yield problem(
            "channel layer",
            f"a doorbell was not heard within {SECONDS:g} seconds",
            "See to Redis (REDIS_URL) and its log. Until then progress and cancellations come late.",
        )
        return
    yield judged(
        "channel layer",
        f"a doorbell is heard after {taken * 1000:.1f} ms",
        "Use a Redis that is nearer: progress and cancellations wait for it.",
        doubtful=taken > SLOW_SECONDS,
    )


async def _rung_and_heard() -> float | None:
    topic, switchboard = f"doctor:{uuid4()}", Switchboard()
    try:
        with switchboard.watching(topic) as watch:
            end = perf_counter() + SECONDS
            # The first ones may ring before anybody listens.
            while (began := perf_counter()) < end:
                publish.ring(topic)
                if await watch.wait(AGAIN_SECONDS):
                    return perf_counter() - began
    finally:
        await switchboard.stop()
    return None
