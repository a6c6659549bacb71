"""The classification of messages: pure functions over headers and bodies."""

from typing import Any

import pytest

from tools_app.protocol import inbound, jsonrpc
from tools_app.protocol.errors import RpcError
from tools_app.protocol.inbound import CAPABILITIES_META, VERSION_META, Handshake, Modern
from tools_app.protocol.jsonrpc import Notification, Request

MODERN = "2026-07-28"
HEADERS = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "echo"}


def request(method: str = "tools/call", **params: Any) -> Request:
    meta = {VERSION_META: MODERN, CAPABILITIES_META: {}}
    message = jsonrpc.message(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "echo", "_meta": meta, **params}}
    )
    assert isinstance(message, Request)
    return message


def test_a_request_that_says_all_is_modern() -> None:
    assert inbound.classify(HEADERS, request()) == Modern(MODERN, {}, {})


@pytest.mark.parametrize("version", [None, "2024-11-05", "2025-11-25"])
def test_a_request_without_metadata_belongs_to_a_session(version: str | None) -> None:
    headers = {"mcp-protocol-version": version} if version else {}
    assert inbound.classify(headers, Request(1, "ping", {})) == Handshake()


@pytest.mark.parametrize(
    ("headers", "message", "code"),
    [
        ({}, request(), -32020),
        (HEADERS | {"mcp-name": "other"}, request(), -32020),
        (HEADERS | {"mcp-method": "ping"}, request(), -32020),
        (HEADERS, Request(1, "tools/call", {"name": "echo"}), -32602),
        (HEADERS, request(_meta={VERSION_META: 1, CAPABILITIES_META: {}}), -32602),
        ({"mcp-protocol-version": "1.0"}, Request(1, "ping", {}), -32022),
        ({"mcp-protocol-version": "1.0"}, Notification("x", {}), -32022),
    ],
)
def test_a_refusal_has_its_code(headers: dict[str, str], message: Request | Notification, code: int) -> None:
    refusal = inbound.classify(headers, message)
    assert isinstance(refusal, RpcError)
    assert refusal.code == code


@pytest.mark.shows("streamable-http.base64-headers")
@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        ("echo", "echo"),
        ("=?base64?w6k=?=", "é"),
        ("=?base64??=", ""),
        ("=?base64?w6k?=", None),
        ("=?base64?/w==?=", None),
        ("=?base64?w6k=", "=?base64?w6k="),
    ],
)
def test_a_header_value_is_decoded(value: str | None, plain: str | None) -> None:
    assert inbound.decoded(value) == plain


@pytest.mark.parametrize("text", ["plain", "a b"])
def test_a_plain_header_value_goes_as_it_is(text: str) -> None:
    assert inbound.encoded(text) == text


@pytest.mark.parametrize("text", ["", "ü", " a", "a ", "a\nb", "=?base64?YQ==?=", "=?base64?"])
def test_other_header_values_are_encoded(text: str) -> None:
    value = inbound.encoded(text)
    assert value.startswith("=?base64?")
    assert inbound.decoded(value) == text


@pytest.mark.shows("progress.token")
@pytest.mark.parametrize(
    ("token", "good"), [("a", True), ("", True), (0, True), (True, False), (1.5, False), (None, False), ([], False)]
)
def test_a_progress_token_is_a_text_or_a_whole_number(token: object, good: bool) -> None:
    found = inbound.progress_token(request(_meta={"progressToken": token}))
    assert found == (token if good else None)
