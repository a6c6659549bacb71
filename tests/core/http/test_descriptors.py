"""What a connection that ends while it opens does to the descriptors of others."""

import asyncio
import gc
import os
import socket
import ssl
from contextlib import ExitStack

import pytest
import uvloop

from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.network import CheckedNetwork

# More than it takes to open a connection without TLS, and to hand one with TLS over.
STEPS = 6
WAIT_SECONDS = 30.0


async def end_while_it_opens(port: int, steps: int, tls: ssl.SSLContext | None, *, is_cancelled: bool) -> None:
    """End a connection so many steps of the event loop after it began to open. Returns once it has ended."""
    stream = await CheckedNetwork(parse_networks(["127.0.0.1/32"])).connect_tcp("127.0.0.1", port, WAIT_SECONDS)
    opening = asyncio.create_task(stream.start_tls(tls, "localhost") if tls else stream.read(1))  # type: ignore[arg-type]
    for _ in range(steps):
        await asyncio.sleep(0)
    if is_cancelled:
        opening.cancel()
        await asyncio.wait([opening])
    await stream.aclose()
    with ExitStack() as stack:
        # One of them has the lowest number that is free: that of the connection, if its descriptor is closed.
        others = [stack.enter_context(end) for _ in range(5) for end in socket.socketpair()]
        before = [os.fstat(other.fileno()).st_ino for other in others]
        for _ in range(STEPS):
            await asyncio.sleep(0)
        await stream.aclose()
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled() or opening.exception()
        del stream, opening
        for _ in range(STEPS):
            await asyncio.sleep(0)
        gc.collect()
        assert [os.fstat(other.fileno()).st_ino for other in others] == before


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["closed", "cancelled"])
@pytest.mark.parametrize("tls", [None, ssl.create_default_context()], ids=["plain", "tls"])
@pytest.mark.parametrize("steps", range(STEPS))
def test_a_connection_that_ends_while_it_opens_closes_its_own_descriptor_alone(
    steps: int, tls: ssl.SSLContext | None, is_cancelled: bool
) -> None:
    # uvloop closes descriptors by their numbers, without the knowledge of a socket that has not been handed over yet.
    with socket.create_server(("127.0.0.1", 0)) as server:
        uvloop.run(end_while_it_opens(server.getsockname()[1], steps, tls, is_cancelled=is_cancelled))
