"""Fixtures for tests over the network: clients of each revision, and fresh rate limits."""

from collections.abc import Callable, Iterator

import pytest

from tests.wire.client import EACH_HANDSHAKE, EACH_VERSION, Peer, RawClient
from tools_app.audit.recorder import denials
from tools_app.server.embedded import EmbeddedHub


@pytest.fixture(autouse=True)
def fresh_denials() -> None:
    """Reset the bound on recorded denials."""
    denials._window.stop()


@pytest.fixture
def make_client(hub: EmbeddedHub) -> Iterator[Callable[..., RawClient]]:
    """A client of the running hub: `make_client(key, path="/t/acme/mcp")`."""
    clients: list[RawClient] = []

    def make(key: str | None, path: str = "/mcp") -> RawClient:
        clients.append(RawClient(hub.url, key, path))
        return clients[-1]

    yield make
    for client in clients:
        client.http.close()


@pytest.fixture
def client(make_client: Callable[..., RawClient], key: str) -> RawClient:
    """A client with a key of `tenant`."""
    return make_client(key)


@pytest.fixture(params=EACH_VERSION)
def peer(request: pytest.FixtureRequest, client: RawClient) -> Peer:
    """A client of each revision in turn."""
    return client.peer(request.param)


@pytest.fixture(params=EACH_HANDSHAKE)
def session(request: pytest.FixtureRequest, client: RawClient) -> Peer:
    """A client of each handshake revision in turn."""
    return client.handshake(request.param)
