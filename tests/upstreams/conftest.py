"""Fixtures for tests of upstreams: servers, a tenant that may reach loopback, people at the REST API (`rest`)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.rest import _fast_and_unthrottled, people
from tests.rest import as_ as rest
from tests.tenant_config.conftest import applied, planned
from tests.upstreams.servers import SdkServer, sdk_server
from tests.web_services import http, serve
from tests.wire.conftest import client, make_client
from tests.worlds import acme, globex, worlds
from tools_app.models import Tenant, Upstream
from tools_app.upstreams import connections, service
from tools_app.upstreams.credentials import refresh

__all__ = [
    "_fast_and_unthrottled",
    "acme",
    "applied",
    "client",
    "globex",
    "http",
    "make_client",
    "people",
    "planned",
    "rest",
    "sdk_server",
    "serve",
    "worlds",
]


@pytest.fixture(autouse=True)
def fresh_connections(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the connections when the test ends.

    Housekeeping does not refresh tokens: tests do it explicitly.
    """
    monkeypatch.setattr(refresh.Refresher, "run", lambda _: None)
    yield
    connections.current.stop()
    refresh.refresher.stop()


@pytest.fixture
def loopback_tenant(tenant: Tenant) -> Tenant:
    """The tenant, which may reach loopback."""
    tenant.allowed_networks = ["127.0.0.0/8"]
    tenant.save()
    return tenant


@pytest.fixture
def add_upstream(loopback_tenant: Tenant) -> Callable[..., Upstream]:
    """Add an upstream and accept all that it offers: `add(server, era="handshake")`."""

    def make(server: SdkServer | str, name: str = "books", prefix: str = "books", **more: Any) -> Upstream:
        url = server if isinstance(server, str) else server.url
        upstream = Upstream.objects.create(tenant=loopback_tenant, name=name, prefix=prefix, url=url, **more)
        good, bad = service.partition_acceptable(service.discover(upstream).items)
        assert not bad
        service.accept(good)
        return upstream

    return make
