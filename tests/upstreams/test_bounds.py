"""Bounds on the lists of an upstream and on the responses to its own requests."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import pytest

from tests.upstreams import scripted
from tests.upstreams.scripted import LOOK
from tests.web_services import Service
from tools_app.catalog.tool_api.results import ToolError
from tools_app.models import Tenant, Upstream
from tools_app.upstreams import client, connections, service, stdio, validation
from tools_app.upstreams.client import MAX_ANSWERING, Message
from tools_app.upstreams.credentials import store
from tools_app.upstreams.duplex import DuplexTransport
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.exchanges import tasks
from tools_app.upstreams.observation import MAX_NAME_LENGTH
from tools_app.upstreams.updates import MAX_URIS, ConnectionUpdates

Listing = Callable[[list[dict[str, Any]]], Upstream]


@pytest.fixture
def listing(serve: Callable[..., Service], loopback_tenant: Tenant) -> Listing:
    """Add an upstream that lists these tools."""

    def make(tools: list[dict[str, Any]]) -> Upstream:
        url = f"{serve(scripted.modern(lambda *_: '', lambda: tools)).url}/mcp"
        return Upstream.objects.create(tenant=loopback_tenant, name="books", url=url)

    return make


def test_a_list_of_too_many_bytes_is_refused(listing: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_LIST_BYTES", 1000)
    with pytest.raises(UpstreamFailed, match="lists more than 1000 bytes of tools"):
        service.discover(listing([{**LOOK, "name": f"look{n}"} for n in range(100)]))


def test_an_item_whose_name_is_too_long_is_left_out(listing: Listing) -> None:
    found = service.discover(listing([LOOK, {**LOOK, "name": "x" * (MAX_NAME_LENGTH + 1)}]))
    assert [item.name for item in found.items] == ["look"]


class Written(DuplexTransport):
    """A stream that counts what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    async def _write(self, message: Message, _headers: Any) -> None:
        self.count += 1


PING: Message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def test_requests_of_an_upstream_are_answered_a_few_at_a_time() -> None:
    async def flooded() -> int:
        transport = Written()
        for _ in range(MAX_ANSWERING * 10):
            transport.received(PING)
        await asyncio.gather(*transport._answering)
        return transport.count

    assert asyncio.run(flooded()) == MAX_ANSWERING


def test_a_tenant_has_so_many_upstreams(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_UPSTREAMS", 1)
    row = Upstream(tenant=tenant, name="books", url="https://books.example.com/mcp")
    assert not validation.upstream_faults(row)
    row.save()
    other = Upstream(tenant=tenant, name="more", url="https://books.example.com/mcp")
    too_many = "A tenant has at most 1 upstreams. Delete one first."
    assert validation.upstream_faults(other) == {"name": [too_many]}


def test_so_many_resources_of_an_upstream_are_subscribed_to() -> None:
    updates = ConnectionUpdates(AsyncMock(), lambda _uris: None)
    updates._wake = lambda: None  # type: ignore[method-assign]
    updates.set_uris(f"docs://{number}" for number in range(MAX_URIS + 1))
    assert len(updates._uris) == MAX_URIS


def test_a_credential_has_a_bound(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_VALUE_LENGTH", 3)
    url = "https://books.example.com/mcp"
    row = Upstream.objects.create(tenant=tenant, name="books", url=url, credential="header")
    store.save_value(row, store.TENANT, "abc")
    with pytest.raises(store.InvalidCredential, match="at most 3"):
        store.save_value(row, store.TENANT, "abcd")


def test_a_tenant_has_so_many_connections_and_processes(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    def endpoint(number: int, *command: str) -> Any:
        return Mock(tenant_id=tenant.pk, id=uuid4(), url=str(number), command=command)

    holder = connections.Connections()
    try:
        monkeypatch.setattr(connections, "MAX_PROCESSES", 1)
        holder._connection(endpoint(1, "run"))
        with pytest.raises(ToolError, match="already runs 1 upstreams as processes"):
            holder._connection(endpoint(2, "run"))
        monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
        holder._connection(endpoint(3))
        with pytest.raises(ToolError, match="Too many credentials"):
            holder._connection(endpoint(4))
    finally:
        holder._by_endpoint.clear()
        holder.close()


def test_a_long_id_of_a_task_is_refused() -> None:
    def task_id(length: int) -> str:
        created = {"taskId": "x" * length}
        return tasks.UpstreamTask(Mock(), created, {}, Mock(), AsyncMock(), is_left=lambda: False).id

    assert len(task_id(tasks.MAX_ID_LENGTH)) == tasks.MAX_ID_LENGTH
    with pytest.raises(UpstreamFailed, match="without a valid id"):
        task_id(tasks.MAX_ID_LENGTH + 1)


@pytest.mark.anyio
async def test_a_program_that_ignores_its_end_is_killed_when_the_time_to_close_is_over() -> None:
    process = Mock(ended=asyncio.Event())
    transport = stdio.StdioTransport.__new__(stdio.StdioTransport)
    transport._process, transport._measuring, transport._cgroup = process, None, ""
    ending = asyncio.create_task(transport._shut())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert process.popen.kill.called
