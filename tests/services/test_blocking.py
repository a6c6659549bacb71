"""Blocking a client in one process takes effect in all: for its tokens and its open streams."""

import time
from urllib.parse import urljoin

import httpx

from tests.services.caller import Caller
from tests.services.conftest import Hub
from tests.services.stack import eventually

CREATE = """
from tools_app.identity.oauth import service_clients
from tools_app.models import Tenant
row, secret = service_clients.create(Tenant.objects.get(slug="demo"), "nightly")
print(row.connection.client.client_id, secret)
"""
BLOCK = """
from tools_app.identity.oauth import clients
from tools_app.models import OAuthClient
clients.set_blocked(OAuthClient.objects.get(client_id={client!r}), blocked={blocked})
"""


def test_a_block_counts_in_every_process_within_a_second(hub: Hub) -> None:
    client, secret = hub.stack.shell(CREATE).split()[-2:]
    data = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}

    def request_token(url: str) -> httpx.Response:
        return httpx.post(urljoin(url, "/oauth/token"), data=data, timeout=10)

    # Issued by one process, used in another.
    caller = Caller(request_token(hub.urls[0]).json()["access_token"]).open(hub.urls[1])

    def statuses() -> set[int]:
        return {caller.call(url, "echo", {"message": "x"}).status_code for url in hub.urls}

    assert statuses() == {200}
    streams = [caller.listening(url) for url in hub.urls]
    for stream in streams:
        assert stream.opened.wait(10)
    hub.stack.shell(BLOCK.format(client=client, blocked=True))
    blocked = time.monotonic()
    for stream in streams:
        stream.finished(5)
    eventually(lambda: statuses() == {401}, 3)
    assert time.monotonic() - blocked < 5
    assert {request_token(url).json()["error"] for url in hub.urls} == {"invalid_client"}
    hub.stack.shell(BLOCK.format(client=client, blocked=False))
    eventually(lambda: statuses() == {200}, 3)
