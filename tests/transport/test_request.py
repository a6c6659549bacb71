"""The head of a request: its key, its bounds, and the client's IP address."""

from typing import Any

import pytest
from django.http import HttpRequest

from tools_app.identity.principal import client_ip_of
from tools_app.transport import stranger_queue
from tools_app.transport.request import MAX_HEADER_BYTES, MAX_HEADERS, AsgiRequest, RequestHead


async def nothing() -> dict[str, Any]:
    raise AssertionError("no body is read")


@pytest.mark.parametrize(
    ("proxies", "values", "address"),
    [
        (0, ["198.51.100.1"], "192.0.2.1"),
        (1, ["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
        (1, ["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
        (2, ["198.51.100.1", "203.0.113.9"], "198.51.100.1"),
        (2, [], "192.0.2.1"),
    ],
)
def test_forwarded_addresses_in_several_headers_are_one_list_for_calls_queues_and_pages(
    settings: Any, proxies: int, values: list[str], address: str
) -> None:
    settings.MCPHUB_TRUSTED_PROXIES = proxies
    headers = [(b"x-forwarded-for", value.encode()) for value in values]
    scope = {"type": "http", "client": ("192.0.2.1", 1), "headers": headers}
    assert AsgiRequest(scope, nothing).remote_address == address
    assert stranger_queue._caller(scope) == address
    page = HttpRequest()
    # Joined as Django's ASGI handler does.
    page.META = {"REMOTE_ADDR": "192.0.2.1"} | ({"HTTP_X_FORWARDED_FOR": ",".join(values)} if values else {})
    assert client_ip_of(page) == address


BEARER, API_KEY, QUERY = (b"authorization", b"Bearer one"), (b"x-api-key", b"two"), b"api_key=three"


@pytest.mark.parametrize(
    ("headers", "query", "key"),
    [
        ([API_KEY, BEARER], QUERY, "one"),
        ([API_KEY], QUERY, "two"),
        ([], QUERY, "three"),
        ([(b"authorization", b"Bearer "), API_KEY], QUERY, "two"),
        ([(b"authorization", b"Basic b25l"), API_KEY], QUERY, "two"),
        ([(b"x-api-key", b" ")], QUERY, "three"),
        ([], b"", None),
    ],
)
def test_of_several_keys_the_bearer_token_counts_then_the_header_then_the_url(
    headers: list[tuple[bytes, bytes]], query: bytes, key: str | None
) -> None:
    credential = RequestHead(headers, "/mcp", query).credential("acme")
    assert (credential and credential.key) == key
    assert credential is None or credential.from_query == (key == "three")


def test_equal_heads_share_nothing() -> None:
    """What is kept of a head would hold its client's key."""
    scopes: list[dict[str, Any]] = [{"type": "http", "headers": [BEARER]} for _ in range(2)]
    first, second = (AsgiRequest(scope, nothing).head for scope in scopes)
    assert first is not second
    assert AsgiRequest(scopes[0], nothing).head is first


def test_headers_are_bounded_by_their_own_bytes() -> None:
    headers = [(b"x-first", b"y"), (b"x-second", b"y" * (MAX_HEADER_BYTES - 16))]
    assert RequestHead(headers, "/mcp", b"").fault is None
    fault = RequestHead([*headers, (b"z", b"")], "/mcp", b"").fault
    assert fault is not None
    assert fault.status == 431


def test_too_many_headers_are_not_joined() -> None:
    names = [b"mcp-param-%d" % number for number in range(MAX_HEADERS)]
    head = RequestHead([(name, b"one") for name in (*names, names[0])], "/mcp", b"")
    assert head.fault is not None
    assert head.fault.status == 431
    assert head.headers["mcp-param-0"] == "one"
