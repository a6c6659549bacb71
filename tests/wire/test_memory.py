"""The memory of large requests is free when they are answered, without a garbage collection."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.wire.client import WAIT_SECONDS, RawClient, modern_request, rpc
from tools_app.core import request_memory
from tools_app.toolkit import ProtocolError, tool

pytestmark = pytest.mark.servers

SIZE = 1_000_000
REQUESTS, MANY_REQUESTS = 6, 100
LARGE = "x" * SIZE
# Messages of about SIZE bytes, and what answers them: refused at one step or another, or run.
MESSAGES: dict[str, tuple[Any, Any, str]] = {
    "text": (LARGE, {}, "Invalid request"),
    "initialize": (
        rpc("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"x": {"y": LARGE}}}),
        {},
        "capabilities",
    ),
    "unknown method": (*modern_request("x/y", {"x": LARGE}), "Method not found"),
    "unknown tool": (*modern_request("tools/call", {"name": "none", "arguments": {"x": LARGE}}), "Unknown tool"),
    "arguments": (
        *modern_request("tools/call", {"name": "echo", "arguments": {"message": [LARGE]}}),
        "Invalid arguments",
    ),
    "result": (*modern_request("tools/call", {"name": "echo", "arguments": {"message": LARGE}}), "hello xxx"),
    "error": (*modern_request("tools/call", {"name": "breaks", "arguments": {"message": LARGE}}), "error occurred"),
    "refusal": (*modern_request("tools/call", {"name": "refuses", "arguments": {"message": LARGE}}), "Not so."),
}


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Disable the garbage collector during the test."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def allocated(no_collection: None) -> Iterator[Callable[[], int]]:
    """Return how many bytes this process has allocated since the test began, while nothing is collected."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.fixture
def tools(registries: None, offer: Callable[..., object]) -> None:
    @tool
    def breaks(message: str) -> str:
        problem = ValueError(message[:10])
        raise problem

    @tool
    def refuses(message: str) -> str:
        problem = ProtocolError("Not so.", 1, message[:10])
        raise problem

    offer("echo", "breaks", "refuses")


@pytest.fixture
def connect(client: RawClient) -> Iterator[Callable[[], HTTPConnection]]:
    """Connections that stay open for the test. Not of httpx: its responses are reference cycles with their requests."""
    with ExitStack() as opened:
        address = urlsplit(client.url).netloc
        yield lambda: opened.enter_context(closing(HTTPConnection(address, timeout=WAIT_SECONDS)))


def post(connection: HTTPConnection, client: RawClient, body: bytes, headers: dict[str, str | None]) -> str:
    connection.request("POST", client.path, body, client.headers(headers))
    return connection.getresponse().read().decode()


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("closes", [False, True], ids=["idle", "closed"])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_large_request_leaves_nothing_behind(
    client: RawClient,
    connect: Callable[[], HTTPConnection],
    allocated: Callable[[], int],
    eventually: Callable[..., object],
    name: str,
    closes: bool,
) -> None:
    message, headers, answer = MESSAGES[name]
    body = json.dumps(message).encode()
    assert answer in post(connect(), client, body, headers)
    before = allocated()
    for _ in range(REQUESTS):
        connection = connect()
        post(connection, client, body, headers)
        if closes:
            connection.close()
    # The server may still be ending the last request when its client has the answer.
    eventually(lambda: allocated() - before < SIZE)


@pytest.mark.usefixtures("no_collection")
def test_a_request_leaves_no_reference_cycle(
    client: RawClient,
    connect: Callable[[], HTTPConnection],
    eventually: Callable[..., object],
    offer: Callable[..., object],
) -> None:
    # Cycles are garbage for a full collection, which pauses all calls for as long as there are many of them.
    offer("echo")
    message, headers = modern_request("tools/call", {"name": "echo", "arguments": {"message": "x"}})
    connection, body = connect(), json.dumps(message).encode()
    for _ in range(REQUESTS):
        assert "hello x" in post(connection, client, body, headers)

    eventually(lambda: growth_by(lambda: post(connection, client, body, headers)) < MANY_REQUESTS)


def growth_by(request: Callable[[], object]) -> int:
    """Make many requests, and return how many more objects there are.

    What is made once, such as a module that is imported late, is made in the first rounds; a cycle, in each.
    """
    before = len(gc.get_objects())
    for _ in range(MANY_REQUESTS):
        request()
    return len(gc.get_objects()) - before


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_stream_of_changes_that_was_closed_leaves_no_reference_cycle(
    client: RawClient, eventually: Callable[..., object], method: str
) -> None:
    message, headers = modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    if method == "GET":
        headers = {**client.handshake().headers(), "Accept": "text/event-stream"}
    body, address = json.dumps(message).encode() if method == "POST" else None, urlsplit(client.url).netloc

    def open_and_close() -> None:
        with closing(HTTPConnection(address, timeout=WAIT_SECONDS)) as connection:
            connection.request(method, client.path, body, client.headers(headers))
            assert connection.getresponse().status == 200

    eventually(lambda: growth_by(open_and_close) < MANY_REQUESTS)


@pytest.mark.usefixtures("tools")
def test_each_large_answer_of_a_batch_is_counted(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_memory, "_results", request_memory.MemoryBudget(lambda: (7 * SIZE // 2, 10 * SIZE)))
    session = client.handshake("2025-03-26")

    def texts(sizes: list[int]) -> list[str]:
        calls = [
            rpc("tools/call", {"name": "echo", "arguments": {"message": "x" * size}}, id=id)
            for id, size in enumerate(sizes)
        ]
        answers = client.post(calls, session.headers()).json()
        return [answer["result"]["content"][0]["text"][:20] for answer in answers]

    assert sum(text.startswith("Too many large") for text in texts([1, *[SIZE] * 3, 1])) == 0
    for _ in range(2):
        assert sum(text.startswith("Too many large") for text in texts([1, *[SIZE // 2] * 8, 1])) == 2
