"""Server-sent events as bytes."""

from tools_app.protocol import sse
from tools_app.protocol.sse import Frame


def test_an_event_is_framed_around_its_message() -> None:
    assert sse.event(Frame(b'{"a":1}')) == b'event: message\ndata: {"a":1}\n\n'


def test_an_event_says_where_its_stream_is_taken_up_again() -> None:
    assert sse.event(Frame(b"{}", "c/7")) == b"id: c/7\nevent: message\ndata: {}\n\n"


def test_a_stream_is_primed_with_a_place_and_a_time_to_come_back() -> None:
    assert sse.priming("c/0") == b"id: c/0\nretry: 500\ndata: \n\n"


def test_a_keep_alive_is_a_comment() -> None:
    assert sse.KEEPALIVE.startswith(b":")
    assert sse.KEEPALIVE.endswith(b"\n\n")
