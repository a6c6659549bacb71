"""The cache of parsed request headers: one entry for each distinct head, with a short lifetime."""

from collections.abc import Callable
from typing import Any

import pytest

from tools_app.transport import request_head
from tools_app.transport.request_head import MAX_HEADS, MAX_REMEMBERED_HEAD_BYTES, REMEMBERED_SECONDS, RequestHead

HEADERS = [(b"host", b"localhost"), (b"authorization", b"Bearer one")]


class Loop:
    """An event loop that records scheduled calls."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.later.append((seconds, callback))


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Loop]:
    """The event loops on which heads are parsed; the last one is running. The cache is empty."""
    loops = [Loop()]
    monkeypatch.setattr(request_head, "_remembered", request_head._RememberedHeads(lambda: loops[-1]))  # type: ignore[arg-type]
    return loops


def head_of(headers: list[tuple[bytes, bytes]], path: str = "/mcp", query: bytes = b"") -> RequestHead:
    scope: dict[str, Any] = {"headers": [*headers], "path": path, "query_string": query}
    head = request_head.head_of(scope)
    assert request_head.head_of(scope) is head
    return head


def test_an_equal_head_is_parsed_once() -> None:
    assert head_of(HEADERS) is head_of([(bytes(bytearray(name)), value) for name, value in HEADERS])


@pytest.mark.parametrize(
    "other",
    [
        {"headers": [HEADERS[0], (b"authorization", b"Bearer two")]},
        {"headers": [*HEADERS, (b"accept", b"application/json")]},
        {"headers": HEADERS[::-1]},
        {"headers": HEADERS, "path": "/t/acme/mcp"},
        {"headers": HEADERS, "query": b"api_key=three"},
    ],
)
def test_a_head_that_differs_is_another(other: dict[str, Any]) -> None:
    assert head_of(**other) is not head_of(HEADERS)


def test_each_head_has_its_own_credential() -> None:
    credentials = [
        head_of([(b"authorization", b"Bearer one")]).credential(None),
        head_of([(b"x-api-key", b"two")]).credential(None),
        head_of([], query=b"api_key=three").credential(None),
        head_of([]).credential(None),
    ]
    assert [credential and credential.key for credential in credentials] == ["one", "two", "three", None]
    assert head_of([(b"authorization", b"Bearer one")]).credential(None) is credentials[0]


def test_a_head_that_is_rejected_is_not_remembered() -> None:
    twice = [*HEADERS, HEADERS[0]]
    assert head_of(twice).fault is not None
    assert head_of(twice) is not head_of(twice)


def test_a_large_head_is_not_remembered() -> None:
    large = [*HEADERS, (b"x-large", b"x" * MAX_REMEMBERED_HEAD_BYTES)]
    assert head_of(large).fault is None
    assert head_of(large) is not head_of(large)


def test_so_many_heads_are_remembered_and_no_more() -> None:
    first = head_of(HEADERS)
    for number in range(MAX_HEADS - 1):
        head_of([(b"x-number", b"%d" % number)])
    assert head_of(HEADERS) is first
    head_of([(b"x-number", b"last")])
    assert head_of(HEADERS) is not first
    assert len(request_head._remembered._heads) <= MAX_HEADS


def test_heads_with_keys_are_forgotten_after_a_while_even_if_nobody_asks(loops: list[Loop]) -> None:
    first = head_of(HEADERS)
    head_of([(b"x-number", b"two")])
    ((seconds, forget),) = loops[-1].later
    assert seconds == REMEMBERED_SECONDS
    forget()
    assert head_of(HEADERS) is not first
    assert len(loops[-1].later) == 2


def test_heads_of_an_event_loop_that_ended_are_forgotten(loops: list[Loop]) -> None:
    first = head_of(HEADERS)
    loops.append(Loop())
    head_of([(b"x-number", b"two")])
    assert head_of(HEADERS) is not first
