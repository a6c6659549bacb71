"""The guarded HTTP client: requests on the wire, and timeouts."""

import asyncio
import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pytest

from tools_app.core.http import client as exchange
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import Outbound, RequestPolicy
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.urls import parse_url

WAIT_SECONDS = 8.0
LOOPBACK = parse_networks(["127.0.0.0/8"])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Service:
    """A service that handles one request at a time and sends `answer`, or nothing if it is empty."""

    answer: bytes = OK
    requests: list[bytes] = field(default_factory=list)
    port: int = 0

    def serve(self, listener: socket.socket) -> None:
        with ExitStack() as connections, suppress(OSError):  # until the listener is closed
            while True:
                connection, _ = listener.accept()
                connections.enter_context(connection)
                self.requests.append(connection.recv(65536))
                connection.sendall(self.answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/x"


@pytest.fixture
def service() -> Iterator[Service]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        service = Service(port=listener.getsockname()[1])
        thread = threading.Thread(target=service.serve, args=[listener], daemon=True)
        thread.start()
        yield service
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(WAIT_SECONDS)


def send(service: Service, *, seconds: float = WAIT_SECONDS, max_bytes: int = 1000) -> exchange.Reply:
    request = Outbound("GET", parse_url(service.url), (), None)
    return asyncio.run(exchange.exchange(request, RequestPolicy(LOOPBACK, seconds, max_bytes)))


def test_a_request_names_its_host_and_keeps_no_connection(service: Service) -> None:
    assert send(service).body == b"ok"
    head = service.requests[0].lower().split(b"\r\n")
    assert head.count(b"host: 127.0.0.1:%d" % service.port) == 1
    assert b"connection: close" in head


def test_a_service_that_is_silent_is_not_waited_for(service: Service) -> None:
    service.answer = b""
    with pytest.raises(RequestFailed, match="timed out"):
        send(service, seconds=0.2)


@pytest.mark.parametrize(("length", "fits"), [(1000, True), (1001, False)])
def test_an_answer_may_announce_as_much_as_it_may_be_long(service: Service, length: int, fits: bool) -> None:
    service.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length
    if fits:
        assert len(send(service).body) == length
    else:
        with pytest.raises(RequestFailed, match="larger than the 1000 bytes"):
            send(service)


def test_an_answer_that_announces_too_much_is_not_read(service: Service) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await exchange.exchange(Outbound("GET", parse_url(service.url)), RequestPolicy(LOOPBACK, 60.0, 1000))

    service.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n"  # and nothing follows
    with pytest.raises(RequestFailed, match="larger than the 1000 bytes"):
        asyncio.run(bounded())


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("GET", None, None),
        ("DELETE", None, None),
        ("POST", None, b"0"),
        ("PUT", None, b"0"),
        ("PATCH", None, b"0"),
        ("POST", b"abc", b"3"),
        ("DELETE", b"abc", b"3"),
    ],
)
def test_a_body_is_sent_with_its_length_and_a_missing_one_as_empty_where_one_is_expected(
    service: Service, method: str, body: bytes | None, length: bytes | None
) -> None:
    request = Outbound(method, parse_url(service.url), (), body)
    assert asyncio.run(exchange.exchange(request, RequestPolicy(LOOPBACK, WAIT_SECONDS, 1000))).body == b"ok"
    head, _, content = service.requests[0].partition(b"\r\n\r\n")
    assert content == (body or b"")
    lengths = [line.partition(b": ")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    assert lengths == ([] if length is None else [length])


@pytest.mark.parametrize("length", [500, 5000])
def test_an_answer_to_head_has_no_body_whatever_it_announces(service: Service, length: int) -> None:
    async def bounded() -> exchange.Reply:
        async with asyncio.timeout(WAIT_SECONDS):
            return await exchange.exchange(
                Outbound("HEAD", parse_url(service.url)), RequestPolicy(LOOPBACK, 60.0, 1000)
            )

    service.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Found: yes\r\n\r\n" % length
    reply = asyncio.run(bounded())
    assert (reply.status, reply.body, reply.headers.get("x-found")) == (200, b"", "yes")


def test_a_packed_answer_is_unpacked(service: Service) -> None:
    packed = gzip.compress(b"x" * 999, mtime=0)
    service.answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    assert send(service).body == b"x" * 999
