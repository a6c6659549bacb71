"""Small frames of WebSocket clients that complete no message, under both servers."""

import socket
from collections.abc import Iterator

import pytest

from tests.processes.hub import Connect, listening
from tests.server.frames import CONTINUATION, PING, TEXT, Frame, frame, handshake, read_frame
from tools_app.protocol.close_codes import TOO_MANY_FRAMES
from tools_app.server import websocket_frames
from tools_app.server.base import SERVERS
from tools_app.server.websocket_frames import MAX_SMALL_FRAMES, SMALL_BYTES, SMALL_FRAMES_PER_SECOND, FrameLimit

CLOSE, PONG = 8, 10
MEGABYTE = 1024 * 1024
# It sends the size of each message.
SERVING = f"""
import sys
import django
from django.utils.module_loading import import_string
django.setup()
from tools_app.server import base, boundary
Server = import_string(sys.argv[1])

async def application(scope, receive, send):
    await receive()
    await send({{"type": "websocket.accept"}})
    while (event := await receive())["type"] == "websocket.receive":
        await send({{"type": "websocket.send", "text": str(len(event["text"]))}})

listener = base.bind("127.0.0.1", 0)
port = listener.getsockname()[1]
Server(boundary.Boundary(application), listener, {MEGABYTE}).run(lambda: print(port, flush=True))
"""


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(websocket_frames, "time", clock)
    return clock


@pytest.fixture(scope="module", params=SERVERS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects to such a server."""
    with listening(SERVING, request.param) as connect:
        yield connect


def limit() -> tuple[FrameLimit, list[bytes], list[str]]:
    """A limit, with what it passed on, and one item for each refusal."""
    received: list[bytes] = []
    refused: list[str] = []
    return FrameLimit(received.append, lambda: refused.append("refused")), received, refused


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("piece", [1, 7, 4096])
@pytest.mark.parametrize(
    "small", [frame(PING), frame(PONG, b"x" * 125), frame(CONTINUATION, b"x" * (SMALL_BYTES - 1), fin=False)]
)
def test_small_frames_that_complete_no_message_are_counted_wherever_they_are_divided(small: bytes, piece: int) -> None:
    frames, received, refused = limit()
    data = frame(TEXT, b"x" * 70_000, fin=False) + small * MAX_SMALL_FRAMES
    for start in range(0, len(data), piece):
        frames.receive(data[start : start + piece])
    assert b"".join(received) == data
    assert not refused
    for start in range(len(small)):
        frames.receive(small[start : start + 1])
    frames.receive(small)
    assert refused == ["refused"]


def test_messages_and_large_fragments_are_not_counted() -> None:
    frames, received, refused = limit()
    data = frame(TEXT, b"{}") * 1000 + frame(TEXT, b"x" * SMALL_BYTES, fin=False)
    data += frame(CONTINUATION, b"x" * SMALL_BYTES, fin=False) * 1000 + frame(CONTINUATION)
    frames.receive(data)
    assert received == [data]
    assert not refused


def test_a_client_may_send_small_frames_again_after_a_while(clock: Clock) -> None:
    frames, _, refused = limit()
    frames.receive(frame(PING) * MAX_SMALL_FRAMES)
    clock.now += 1
    frames.receive(frame(PING) * SMALL_FRAMES_PER_SECOND)
    assert not refused
    frames.receive(frame(PING))
    assert refused


@pytest.mark.parametrize("flood", [frame(PING), frame(TEXT, fin=False) + frame(CONTINUATION, fin=False)])
def test_a_client_that_sends_too_many_is_told_why(connect: Connect, flood: bytes) -> None:
    with connect() as client:
        handshake(client)
        client.sendall(flood[:6] + flood[-6:] * 2 * MAX_SMALL_FRAMES)
        frames = iter(lambda: read_frame(client), None)
        close = next(received for received in frames if received.opcode != PONG)
        assert close == Frame(CLOSE, TOO_MANY_FRAMES.to_bytes(2))
        assert read_frame(client) is None


def test_fragments_pings_and_large_messages_arrive(connect: Connect) -> None:
    with connect() as client:
        handshake(client)
        client.sendall(frame(TEXT, b"ab", fin=False) + frame(PING, b"now") + frame(CONTINUATION, b"c"))
        assert {read_frame(client), read_frame(client)} == {Frame(PONG, b"now"), Frame(TEXT, b"3")}
        client.sendall(frame(TEXT, b"x" * MEGABYTE))
        assert read_frame(client) == Frame(TEXT, str(MEGABYTE).encode())
        client.shutdown(socket.SHUT_WR)
        assert read_frame(client) is None
