"""Large results of every kind leave the event loops to other requests."""

import asyncio
import gc
import json
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Any

import orjson
import pytest

from tests.upstreams import scripted
from tests.upstreams.scripted import LOOK, reply
from tests.upstreams.test_http import EVENTS, event
from tests.web_services import Received, Service, http_response
from tests.wire.client import RawClient, message_of
from tools_app.catalog import authoring
from tools_app.models import ApiSource, Resource, ResourceKind, Tenant, Tool, Upstream
from tools_app.toolkit import resource, tool
from tools_app.upstreams import connections

SECRET = "hush-hush-1"
LARGE = [[number, f"{number}-é"] for number in range(60_000)]
# With a secret in JSON escapes, so that the result is also taken apart.
TEXT = orjson.dumps({"numbers": LARGE, "key": SECRET}).decode().replace("hush", r"\u0068ush")
PROPERTIES = {"numbers": {"type": "array", "items": {"type": "array", "minItems": 2}}}


class Contents:
    """What tools, resources and prompts return: little at first, so that all is loaded, and then much."""

    def __init__(self) -> None:
        self.numbers: list[Any] = [[1, "é"]]
        self.text = json.dumps({"numbers": self.numbers, "key": SECRET})

    def grow(self) -> None:
        self.numbers, self.text = LARGE, TEXT


class LoopMeter:
    """The processor time of the longest step of an event loop: of its own thread, whatever others do meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._last = loop, thread_time()
        self.longest = 0.0
        self.is_stopped = False
        self._tick()

    def _tick(self) -> None:
        now = thread_time()
        self.longest, self._last = max(self.longest, now - self._last), now
        if not self.is_stopped:
            self._loop.call_later(0.001, self._tick)


@pytest.fixture
def contents() -> Contents:
    return Contents()


@pytest.fixture
def meters() -> Iterator[list[LoopMeter]]:
    """Garbage collections are not measured: they take as long wherever they happen to run."""
    running: list[LoopMeter] = []
    gc.collect()
    gc.disable()
    yield running
    gc.enable()
    for meter in running:
        meter.is_stopped = True


@pytest.fixture
def functions(
    contents: Contents,
    meters: list[LoopMeter],
    registries: None,
    offer: Callable[..., list[Tool]],
    offer_resources: Callable[..., list[Resource]],
) -> None:
    """Offer functions as tools and as a resource, and the tool that measures the loops."""

    @tool(read_only=True)
    async def measure() -> None:
        meters.append(LoopMeter(asyncio.get_running_loop()))
        connections.current().call_soon(lambda: meters.append(LoopMeter(asyncio.get_running_loop())))

    @tool(read_only=True)
    async def on_loop() -> dict[str, list[Any]]:
        return {"numbers": contents.numbers}

    @tool
    def in_thread() -> list[list[Any]]:
        return contents.numbers

    @tool(background=True)
    def in_worker() -> dict[str, list[Any]]:
        return {"numbers": contents.numbers}

    @tool(read_only=True)
    async def masked() -> dict[str, list[Any]]:
        return {"numbers": contents.numbers}

    @resource("large://json")
    async def value() -> Any:
        return contents.numbers

    for row in offer("measure", "on_loop", "in_thread", "in_worker", "masked"):
        if row.name == "masked":
            row.result_mask = "numbers[*][0]"
            authoring.save_tool(row)
    offer_resources("large://json")


@pytest.fixture
def requests(contents: Contents, serve: Callable[..., Service], loopback_tenant: Tenant) -> None:
    """Offer requests to a service that repeats their secret."""
    authoring.set_secret(loopback_tenant, "TOKEN", SECRET)
    headers = {"Authorization": "Bearer {secret:TOKEN}"}
    service = serve(lambda _: http_response(200, contents.text.encode(), "application/json", Connection="close"))
    request = {"base_url": service.url, "method": "GET", "path": "", "headers": headers, "max_response_bytes": 2**23}
    schema = {"type": "object", "properties": PROPERTIES}
    common = {"tenant": loopback_tenant, "input_schema": {"type": "object"}, "output_schema": schema}
    authoring.save_tool(Tool(name="http", kind="http", config=request, **common))
    source = ApiSource.objects.create(
        tenant=loopback_tenant,
        name="api",
        base_url=service.url,
        schemes={"token": {"kind": "header", "name": "X-Token"}},
        secrets={"token": "TOKEN"},
    )
    operation = {"method": "GET", "path": "/", "parameters": [], "security": [["token"]], "max_response_bytes": 2**23}
    authoring.save_tool(
        Tool(name="operation", kind="operation", source=source, operation="GET /", config=operation, **common)
    )
    Resource.objects.create(
        tenant=loopback_tenant, name="http", uri="large://http", kind=ResourceKind.HTTP, config=request
    )


@pytest.fixture
def forwarded(
    contents: Contents, serve: Callable[..., Service], add_upstream: Callable[..., Upstream], requests: None
) -> None:
    """Offer tools of upstreams that repeat their secret: in a body, and on a stream."""

    def result() -> dict[str, Any]:
        return {**scripted.result(contents.text), "structuredContent": {"numbers": contents.numbers, "key": SECRET}}

    def modern(_request: Received, message: dict[str, Any]) -> bytes:
        return reply(message["id"], result())

    def streamed(_request: Received, message: dict[str, Any]) -> list[bytes]:
        return [EVENTS, event({"jsonrpc": "2.0", "id": message["id"], "result": result()})]

    for name, answer in (("direct", modern), ("streamed", streamed)):
        url = f"{serve(scripted.modern(answer, lambda: [LOOK])).url}/mcp"
        add_upstream(url, name=name, prefix=name, headers={"Authorization": "Bearer {secret:TOKEN}"})


CALLS = [
    *(("tools/call", {"name": name}) for name in ("on_loop", "in_thread", "in_worker", "masked")),
    *(("tools/call", {"name": name}) for name in ("http", "operation", "direct_look", "streamed_look")),
    *(("resources/read", {"uri": uri}) for uri in ("large://json", "large://http")),
]


def test_no_step_of_an_event_loop_takes_half_as_long_as_to_parse_a_large_result(
    client: RawClient, functions: None, requests: None, forwarded: None, contents: Contents, meters: list[LoopMeter]
) -> None:
    """Both are processor time of one thread, in which the machine's speed and its other work do not count."""
    peer = client.peer("2026-07-28")
    for call in CALLS:
        assert "result" in message_of(peer.request(*call))
    contents.grow()
    message = orjson.dumps([contents.text, {"numbers": contents.numbers}])
    began = thread_time()
    orjson.loads(orjson.loads(message)[0])
    parsing = thread_time() - began
    peer.result("measure")
    longest: dict[str, float] = {}
    for method, params in CALLS:
        for meter in meters:
            meter.longest = 0.0
        response = peer.request(method, params)
        longest[str(params)] = max(meter.longest for meter in meters)
        assert len(response.content) > len(TEXT) / 4
        assert b"ush-1" not in response.content
    assert len(meters) == 2
    assert {name: seconds / parsing for name, seconds in longest.items() if seconds > parsing / 2} == {}
