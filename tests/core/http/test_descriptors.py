"""What a connection that ends while it opens does to the descriptors of others."""

import asyncio
import gc
import os
import socket

import httpcore2
import pytest
import uvloop

from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.network import CheckedNetwork


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_ends_while_it_opens_closes_its_own_descriptor_once(new_loop) -> None:
    async def open_too_late(port: int) -> int:
        network = CheckedNetwork(parse_networks(["127.0.0.1/32"]))
        stream = await network.connect_tcp("127.0.0.1", port, 5.0)
        number = stream._dialed.fileno()
        stream._open_until = 0.0
        with pytest.raises(httpcore2.ConnectTimeout):
            await stream.read(1)
        await asyncio.sleep(0)
        # Takes the lowest number that is free, which is that of the connection if it was closed.
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
        assert number in others
        await stream.aclose()
        del stream, network
        gc.collect()
        for other in others:
            os.fstat(other)
            os.close(other)
        return number

    with socket.create_server(("127.0.0.1", 0)) as server, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(open_too_late(server.getsockname()[1]))
