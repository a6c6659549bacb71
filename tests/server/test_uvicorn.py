"""uvicorn under the hub's own loop: how an answer leaves it."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.processes.hub import WAIT_SECONDS
from tools_app.server.base import MAX_PIPELINED, bind
from tools_app.server.base import Application as AnyApplication
from tools_app.server.uvicorn import UvicornServer

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
Connect = Callable[[], socket.socket]


class Application:
    """Responds by path. The body of `/slow` follows when `/go` is requested, that of `/fails` never."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self._waiting: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(HEAD)
        if scope["path"] == "/fails":
            raise RuntimeError("no body")
        if scope["path"] == "/slow":
            self._waiting.append(send)
            self.has_begun.set()
            await receive()
            return
        if scope["path"] == "/go":
            for waiting in self._waiting:
                await waiting({"type": "http.response.body", "body": b"slow"})
        await send({"type": "http.response.body", "body": b"done"})


@contextmanager
def serving(application: AnyApplication) -> Iterator[Connect]:
    """A server in a thread of its own; gives what connects to it."""
    with bind("127.0.0.1", 0) as listener:
        server = UvicornServer(application, listener, 1000)
        ready = threading.Event()
        thread = threading.Thread(target=server.run, args=[ready.set])
        thread.start()
        assert ready.wait(WAIT_SECONDS)
        address = listener.getsockname()
        try:
            yield lambda: socket.create_connection(address, WAIT_SECONDS)
        finally:

            async def stop() -> None:
                server.stop()

            server.spawn(stop)
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()


def send_request(client: socket.socket, path: str, *more: bytes) -> None:
    client.sendall(b"\r\n".join([b"GET " + path.encode() + b" HTTP/1.1", b"Host: x", *more, b"", b""]))


def test_head_and_body_of_an_answer_leave_together() -> None:
    application = Application()
    with serving(application) as connect, connect() as slow, connect() as other:
        send_request(slow, "/slow")
        assert application.has_begun.wait(WAIT_SECONDS)
        send_request(other, "/")
        assert other.recv(1000).endswith(b"done")
        slow.setblocking(False)
        with pytest.raises(BlockingIOError):
            slow.recv(1000)
        slow.settimeout(WAIT_SECONDS)
        send_request(other, "/go")
        answer = slow.recv(1000)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nslow")


def test_the_head_of_an_answer_that_breaks_off_is_sent_all_the_same() -> None:
    with serving(Application()) as connect, connect() as client:
        send_request(client, "/fails")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        assert client.recv(1000) == b""


def test_who_asks_before_sending_a_body_is_told_to_go_on() -> None:
    with serving(Application()) as connect, connect() as client:
        send_request(client, "/", b"Content-Length: 2", b"Expect: 100-continue")
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"12")
        assert client.recv(1000).endswith(b"done")


def test_what_answers_a_head_request_is_a_head() -> None:
    with serving(Application()) as connect, connect() as client:
        client.sendall(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = client.recv(1000)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


def test_one_connection_answers_one_request_after_the_other() -> None:
    with serving(Application()) as connect, connect() as client:
        for _ in range(2):
            send_request(client, "/")
            assert client.recv(1000).endswith(b"done")


async def taking_websockets(_scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


def test_a_silent_websocket_is_pinged_as_often_as_streams_are_kept_alive(settings: Any) -> None:
    settings.MCPHUB_KEEPALIVE_INTERVAL = 0.05
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    with serving(taking_websockets) as connect, connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n%bSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\n\r\n" % upgrade)
        received = b""
        while b"\r\n\r\n" not in received or not received.partition(b"\r\n\r\n")[2]:
            received += client.recv(1000)
        head, _, frames = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    assert frames[:2] == b"\x89\x04"  # a ping with four bytes


def test_requests_that_do_not_wait_for_an_answer_are_refused_beyond_a_bound() -> None:
    """All that arrive in one piece are parsed before those of other clients."""
    application = Application()
    with serving(application) as connect, connect() as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert application.has_begun.wait(WAIT_SECONDS)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * (MAX_PIPELINED + 1))
        answer = b""
        while piece := client.recv(1000):
            answer += piece
        assert b" 400 Bad Request" in answer


def test_a_few_requests_may_follow_each_other_without_waiting() -> None:
    with serving(Application()) as connect, connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * MAX_PIPELINED)
        answers = b""
        while answers.count(b"done") < MAX_PIPELINED:
            piece = client.recv(10_000)
            assert piece, answers
            answers += piece
