"""Failing connections: their errors contain no secret, and calls in progress continue."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.upstreams import scripted
from tests.upstreams.scripted import reply
from tests.web_services import Received, Service
from tools_app.catalog import authoring
from tools_app.catalog.kinds.upstream.runner import endpoint_of
from tools_app.models import Tenant, Upstream, UpstreamStatus
from tools_app.upstreams import connections, service
from tools_app.upstreams.connections import Connection, Connections
from tools_app.upstreams.errors import UpstreamFailed


def with_token(tenant: Tenant, url: str, token: str) -> Upstream:
    authoring.set_secret(tenant, "TOKEN", token)
    headers = {"Authorization": "Bearer {secret:TOKEN}"}
    return Upstream.objects.create(tenant=tenant, name="books", url=url, headers=headers)


def test_a_credential_that_the_upstream_repeats_is_in_no_message(
    serve: Callable[..., Service], loopback_tenant: Tenant
) -> None:
    def answer(request: Received) -> bytes:
        message = f"Unknown {request.headers['authorization']}\0"
        return reply(json.loads(request.body)["id"], error={"code": -32000, "message": message})

    upstream = with_token(loopback_tenant, f"{serve(answer).url}/mcp", "hush-hush-1")
    with pytest.raises(UpstreamFailed, match="Unknown Bearer") as raised:
        service.discover(upstream)
    recorded_problem = UpstreamStatus.objects.get(upstream=upstream).problem
    assert "hush" not in f"{raised.value.message}{raised.value.cause}{raised.value.__cause__}{recorded_problem}"
    assert "\0" not in raised.value.message


@pytest.mark.parametrize("token", ["hush\nhush", "hush\0", "hush\u20ac"])
def test_a_secret_that_no_header_can_have_is_named_by_its_header(loopback_tenant: Tenant, token: str) -> None:
    upstream = with_token(loopback_tenant, "http://127.0.0.1:9/mcp", token)
    with pytest.raises(UpstreamFailed, match="The value of the header Authorization cannot be sent") as raised:
        service.discover(upstream)
    assert "hush" not in f"{raised.value.message}{raised.value.cause}"


def test_whitespace_around_a_secret_is_not_sent(serve: Callable[..., Service], loopback_tenant: Tenant) -> None:
    served = serve(scripted.modern(lambda *_: ""))
    service.discover(with_token(loopback_tenant, f"{served.url}/mcp", "hush-hush-1\n"))
    assert {one.headers["authorization"] for one in served.received} == {"Bearer hush-hush-1"}


def test_a_connection_that_a_call_began_to_use_is_not_closed_as_idle(
    loopback_tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing another idle connection takes a while, in which the call begins."""
    monkeypatch.setattr(connections, "IDLE_SECONDS", -1.0)
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 3600.0)
    closed: list[tuple[str, int]] = []
    is_closing, may_close = threading.Event(), threading.Event()

    async def close(connection: Connection) -> None:
        if connection.endpoint.name == "a":
            is_closing.set()
            await asyncio.to_thread(may_close.wait, 10)
        closed.append((connection.endpoint.name, connection.active_calls))

    monkeypatch.setattr(Connection, "close", close)
    upstreams = [
        Upstream.objects.create(tenant=loopback_tenant, name=name, url="http://127.0.0.1:9/mcp") for name in "ab"
    ]
    endpoints = [endpoint_of(upstream, loopback_tenant, {}) for upstream in upstreams]
    holder = Connections()
    finished: Any = None

    async def nothing(_connection: Connection) -> None:
        return None

    async def call(connection: Connection) -> int:
        may_close.set()
        await asyncio.sleep(0.1)
        return connection.active_calls

    try:
        for endpoint in endpoints:
            holder.submit(holder.use(endpoint, nothing)).result(10)
        sweeping = holder.submit(holder._close_idle())
        assert is_closing.wait(10)
        finished = holder.submit(holder.use(endpoints[1], call)).result(10)
        sweeping.result(10)
    finally:
        may_close.set()
        holder.close()
    assert finished == 1
    assert not [name for name, users in closed if users]
