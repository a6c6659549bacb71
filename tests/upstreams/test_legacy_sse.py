"""Upstreams of revision 2024-11-05: one stream, and a URL for requests."""

import json
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.upstreams.test_http import EVENTS
from tests.web_services import Received, Service, http_response
from tests.wire.client import RawClient
from tools_app.models import Tenant, Upstream
from tools_app.upstreams import service
from tools_app.upstreams.errors import UpstreamFailed

WAIT_SECONDS = 30.0


@pytest.fixture
def sse_url() -> Iterator[str]:
    """A server of the official SDK on the old transport."""
    program = Path(__file__).with_name("old_server.py")
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/sse"
        process.kill()


def test_calls_pass_with_their_progress(sse_url: str, add_upstream: Callable[..., Upstream], client: RawClient) -> None:
    upstream = add_upstream(sse_url, transport="sse", prefix="")
    assert upstream.status.era == "handshake"
    peer = client.peer("2026-07-28")
    params = {"name": "count", "arguments": {"steps": 2}, "_meta": {"progressToken": 1}}
    with peer.stream("tools/call", params) as stream:
        messages = stream.read_to_end()
    assert [message["params"]["progress"] for message in messages[:-1]] == [1, 2]
    assert messages[-1]["result"]["structuredContent"] == {"result": "counted"}


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        (b"http://evil.example/take", "names another server for requests"),
        (b"http://[", "names an invalid URL for requests"),
    ],
)
def test_requests_stay_with_the_server(
    serve: Callable[..., Service], loopback_tenant: Tenant, endpoint: bytes, message: str
) -> None:
    service_of_upstream = serve(lambda _request: EVENTS + b"event: endpoint\ndata: " + endpoint + b"\n\n")
    upstream = Upstream.objects.create(
        tenant=loopback_tenant, name="old", transport="sse", url=f"{service_of_upstream.url}/sse"
    )
    with pytest.raises(UpstreamFailed, match=message):
        service.discover(upstream)


def test_a_stream_that_ends_fails_what_waits_for_it(
    serve: Callable[..., Service], add_upstream: Callable[..., Upstream], client: RawClient
) -> None:
    streams: list[queue.Queue[bytes | None]] = []

    def stream() -> Iterator[bytes]:
        queue_of_stream: queue.Queue[bytes | None] = queue.Queue()
        streams.append(queue_of_stream)
        yield EVENTS + f"event: endpoint\ndata: /messages/{len(streams) - 1}\n\n".encode()
        while (message := queue_of_stream.get(timeout=WAIT_SECONDS)) is not None:
            yield b"event: message\ndata: " + message + b"\n\n"

    def answer(request: Received) -> Any:
        if request.method == "GET":
            return stream()
        message, stream_queue = json.loads(request.body), streams[int(request.target.rpartition("/")[2])]
        results = {
            "initialize": {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {}},
            "tools/list": {"tools": [{"name": "end", "inputSchema": {"type": "object"}}]},
        }
        result = results.get(message["method"])
        if message["method"] == "tools/call":
            stream_queue.put(None)
        elif "id" in message:
            stream_queue.put(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
        return http_response(202, Connection="close")

    add_upstream(f"{serve(answer).url}/sse", transport="sse", prefix="")
    result = client.peer("2026-07-28").result("end")
    assert "closed its stream. The call may have run." in result["content"][0]["text"]
