"""Fixtures of the tests of upstreams: servers, a tenant that may reach loopback, and fresh connections."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.upstreams.servers import SdkServer, sdk_server
from tests.web_services import http, serve
from tests.wire.conftest import client, make_client
from tools_app.models import Tenant, Upstream
from tools_app.upstreams import connections, service
from tools_app.upstreams.credentials import refresh

__all__ = ["client", "http", "make_client", "sdk_server", "serve"]


@pytest.fixture(autouse=True)
def fresh_connections(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the connections of a test with it.

    A test says itself when due tokens are refreshed: housekeeping would do it between two of its lines.
    """
    monkeypatch.setattr(refresh.Refresher, "run", lambda _: None)
    yield
    connections.current.stop()
    refresh.refresher.stop()


@pytest.fixture
def near(tenant: Tenant) -> Tenant:
    """The tenant, which may reach loopback."""
    tenant.allowed_networks = ["127.0.0.0/8"]
    tenant.save()
    return tenant


@pytest.fixture
def add(near: Tenant) -> Callable[..., Upstream]:
    """Add an upstream and accept all that it offers: `add(server, era="handshake")`."""

    def make(server: SdkServer | str, name: str = "books", prefix: str = "books", **more: Any) -> Upstream:
        url = server if isinstance(server, str) else server.url
        upstream = Upstream.objects.create(tenant=near, name=name, prefix=prefix, url=url, **more)
        good, bad = service.partition_acceptable(service.discover(upstream).items)
        assert not bad
        service.accept(good)
        return upstream

    return make
