"""Server-sent events as bytes."""

from tools_app.protocol import sse


def test_an_event_is_framed_around_its_message() -> None:
    assert sse.event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'


def test_a_keep_alive_is_a_comment() -> None:
    assert sse.KEEPALIVE.startswith(b":")
    assert sse.KEEPALIVE.endswith(b"\n\n")
