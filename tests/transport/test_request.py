"""The client IP address of a request."""

from typing import Any

import pytest
from django.http import HttpRequest

from tools_app.identity.principal import client_ip_of
from tools_app.transport import stranger_queue
from tools_app.transport.request import AsgiRequest


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
