"""Error codes (2026-07-28, base protocol, §Error Codes)."""

from collections.abc import Callable

import pytest

from tests.wire.client import MODERN, Peer, RawClient, error_of, message_of
from tools_app.models import Call
from tools_app.protocol import errors
from tools_app.toolkit import ProtocolError, tool

# What 2026-07-28 defines in its own range.
DEFINED = {-32020, -32021, -32022}
# What 2025-11-25 defines there; only clients of that revision get it (tests/upstreams/test_pages.py).
EARLIER = {-32042}
OWN_RANGE = range(-32099, -32019)
NOT_TO_CHOOSE = (-32000, -32002, -32019, -32020, -32021, -32022, -32023, -32042, -32050, -32099, -32100, -32768)


@pytest.mark.shows("errors.reserved-range")
def test_the_hub_uses_no_code_of_the_specifications_range_but_those_that_it_defines() -> None:
    codes = {value for value in vars(errors).values() if isinstance(value, int)}
    assert {code for code in codes if code in OWN_RANGE} == DEFINED | EARLIER


@pytest.mark.shows("errors.reserved-range", "errors.retired")
@pytest.mark.parametrize("code", NOT_TO_CHOOSE)
def test_a_function_cannot_answer_with_a_code_that_means_something_else(
    client: RawClient, registries: None, offer: Callable[..., object], code: int
) -> None:
    @tool
    def give() -> str:
        raise ProtocolError("Not so.", code)

    offer("give")
    result = message_of(client.peer(MODERN).call("give"))["result"]
    assert (result["isError"], result["content"][0]["text"]) == (True, "An error occurred invoking 'give'.")
    assert f"{code} is a reserved error code" in Call.objects.get().cause


@pytest.mark.parametrize("code", [1, 0, 4711, -1, -31999, -32769, -32600, -32602, -32603, -32700])
def test_a_function_may_answer_with_a_code_of_its_own(
    client: RawClient, registries: None, offer: Callable[..., object], code: int
) -> None:
    @tool
    def give() -> str:
        raise ProtocolError("Not so.", code, {"why": "closed"})

    offer("give")
    assert error_of(client.peer(MODERN).call("give")) == {"code": code, "message": "Not so.", "data": {"why": "closed"}}


@pytest.mark.shows("errors.retired")
def test_not_found_has_the_code_of_the_revision(peer: Peer) -> None:
    found = [
        error_of(peer.request(method, params))["code"]
        for method, params in (
            ("resources/read", {"uri": "docs://never"}),
            ("prompts/get", {"name": "never"}),
            ("tools/call", {"name": "never"}),
            ("never", {}),
        )
    ]
    assert found == [-32602 if peer.is_modern else -32002, -32602, -32602, -32601]
