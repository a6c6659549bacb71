"""One connection to an upstream: listings beside announced changes, and its end."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tools_app.catalog.kinds.upstream.runner import Endpoint, digest_of
from tools_app.models import ItemKind, ItemState, Tenant, Upstream, UpstreamItem
from tools_app.upstreams import connections, observation, service
from tools_app.upstreams.client import Message
from tools_app.upstreams.connections import Connection
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.observation import Definitions
from tools_app.upstreams.sessions import NO_CAPABILITIES

WAIT_SECONDS = 20.0
CHANGED = {"method": "notifications/tools/list_changed"}
ENDPOINT = Endpoint(uuid4(), uuid4(), "books", "http", "http://127.0.0.1:9/mcp", (), False, "auto", (), (), ())


def definition(description: str) -> dict[str, Any]:
    return {"name": "look", "description": description, "inputSchema": {"type": "object"}}


class Lister:
    """A client whose first listing ends when it may. With `announces`, each listing is overtaken by a change.

    It announces one as it is closed, too.
    """

    is_closed = is_modern = is_duplex = False

    def __init__(self, *, announces: bool = False) -> None:
        self.description = "old"
        self.listings = self.opened = self.closed = 0
        self.connecting, self.may_connect = asyncio.Event(), asyncio.Event()
        self.may_connect.set()
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        self.observed: list[str] = []
        self._announces = announces
        self.connection = Connection(ENDPOINT, self._open, self._observe, lambda *_: None)

    def _open(self, *_: Any) -> Any:
        self.opened += 1
        return self

    async def _observe(self, _upstream_id: UUID, _kind: str, definitions: Definitions) -> None:
        self.observed.append(definitions["look"]["description"])

    async def connect(self) -> None:
        self.connecting.set()
        await self.may_connect.wait()

    async def close(self) -> None:
        self.connection.handle_notification(CHANGED)
        self.closed += 1

    def offers(self, _capability: str) -> bool:
        return True

    async def items(self, _method: str, _key: str) -> list[Message]:
        self.listings += 1
        listed = [definition(self.description)]
        self.began.set()
        if self.listings == 1:
            await self.may_end.wait()
        if self._announces:
            self.connection.handle_notification(CHANGED)
        return listed

    @property
    def cached(self) -> dict[str, str] | None:
        return self.connection._cached_digests(ItemKind.TOOL)


@pytest.mark.anyio
async def test_a_listing_that_an_announced_change_overtook_is_made_again() -> None:
    lister = Lister()
    async with asyncio.timeout(WAIT_SECONDS):
        listing = asyncio.create_task(lister.connection.digests(ItemKind.TOOL))
        await lister.began.wait()
        lister.description = "new"
        lister.connection.handle_notification(CHANGED)
        lister.may_end.set()
        assert await listing == lister.cached == {"look": digest_of(definition("new"))}
        await lister.connection.close()
    assert lister.observed == ["new"]


@pytest.mark.anyio
async def test_an_upstream_that_announces_a_change_with_each_listing_is_called_and_not_listed_without_end() -> None:
    lister = Lister(announces=True)
    lister.may_end.set()
    async with asyncio.timeout(WAIT_SECONDS):
        assert await lister.connection.digests(ItemKind.TOOL) == {"look": digest_of(definition("old"))}
        assert (lister.listings, lister.cached) == (connections.MAX_LISTINGS, None)
        await lister.connection.close()


@pytest.mark.anyio
async def test_of_two_listings_at_a_time_the_newer_one_is_kept() -> None:
    lister = Lister()
    async with asyncio.timeout(WAIT_SECONDS):
        older = asyncio.create_task(lister.connection.digests(ItemKind.TOOL))
        await lister.began.wait()
        lister.description = "new"
        newer = asyncio.create_task(lister.connection.list_definitions(ItemKind.TOOL))
        await asyncio.wait([newer], timeout=0.2)
        lister.may_end.set()
        await asyncio.gather(older, newer)
        assert lister.cached == {"look": digest_of(definition("new"))}
        await lister.connection.close()
    assert lister.observed == ["old", "new"]


@pytest.mark.parametrize(
    ("listed", "state"),
    [({"look": definition("new")}, ItemState.CHANGED), ({}, ItemState.REMOVED)],
    ids=["changed", "removed"],
)
def test_what_an_admin_accepts_while_a_listing_is_stored_stays_accepted(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, listed: Definitions, state: ItemState
) -> None:
    """The listing has read the item before it was accepted."""
    upstream = Upstream.objects.create(tenant=tenant, name="books", url="http://127.0.0.1:9/mcp")
    old = definition("old")
    item = UpstreamItem.objects.create(tenant=tenant, upstream=upstream, kind=ItemKind.TOOL, name="look", proposed=old)
    read_warnings = observation.warnings_of
    pending = [item]

    def accept_first(shown: Any) -> list[str]:
        while pending:
            service.accept([pending.pop()])
        return read_warnings(shown)

    monkeypatch.setattr(observation, "warnings_of", accept_first)
    observation.store_listing(upstream.pk, ItemKind.TOOL, listed)
    item.refresh_from_db()
    assert (item.state, item.accepted, item.proposed) == (state, old, listed.get("look"))


def test_what_cannot_be_stored_is_told_by_kind_until_it_is_gone_and_an_escape_in_a_pattern_is_no_nul(
    tenant: Tenant,
) -> None:
    upstream = Upstream.objects.create(tenant=tenant, name="books", url="http://127.0.0.1:9/mcp")
    escape = {"name": "find", "inputSchema": {"type": "object", "properties": {"a": {"pattern": "[\\u0000-z]*"}}}}
    broken = {
        "nul": {"name": "nul", "description": "a\x00b"},
        "": {"description": "x"},
        "n" * 501: {"name": "n" * 501},
        "large": {"name": "large", "description": "x" * 300_000},
    }
    observation.store_listing(upstream.pk, ItemKind.PROMPT, {"": {}})
    observation.store_listing(upstream.pk, ItemKind.TOOL, {"find": escape, **broken})

    assert [item.name for item in upstream.items.all()] == ["find"]
    prompt, *tools = upstream.status.left_out
    assert prompt == {"kind": "prompt", "name": "", "reason": "It has no name."}
    assert [(one["kind"], one["name"][:5]) for one in tools] == [
        ("tool", ""), ("tool", "large"), ("tool", "nnnnn"), ("tool", "nul")
    ]  # fmt: skip
    for one, reason in zip(tools, ("no name", "The limit is", "longer than 500", "U+0000"), strict=True):
        assert reason in one["reason"]

    observation.store_listing(upstream.pk, ItemKind.TOOL, {"find": escape})
    upstream.status.refresh_from_db()
    assert upstream.status.left_out == [prompt]


def test_a_listing_compares_each_item_a_few_times(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = Upstream.objects.create(tenant=tenant, name="books", url="http://127.0.0.1:9/mcp")
    new = {f"look{number}": definition(str(number)) for number in range(50)}
    observation.store_listing(upstream.pk, ItemKind.TOOL, new)
    upstream.items.filter(name__endswith="1").update(accepted={}, state=ItemState.ACCEPTED)
    compared, is_equal = [], UpstreamItem.__eq__

    def counted(item: UpstreamItem, other: object) -> bool:
        compared.append(item)
        return is_equal(item, other)

    monkeypatch.setattr(UpstreamItem, "__eq__", counted)
    observation.store_listing(upstream.pk, ItemKind.TOOL, {})
    assert [item.state for item in upstream.items.all()] == [ItemState.REMOVED] * 5
    assert len(compared) <= len(new)


def test_the_definitions_of_new_items_are_read_only_if_one_may_be_a_former_one(
    tenant: Tenant, django_assert_num_queries: Any
) -> None:
    upstream = Upstream.objects.create(tenant=tenant, name="books", url="http://127.0.0.1:9/mcp")
    observation.store_listing(upstream.pk, ItemKind.TOOL, {"look": definition("new")})
    with django_assert_num_queries(1) as captured:
        assert service.former_names_of(upstream.pk) == {}
    assert "proposed" not in captured[0]["sql"]


def test_accepting_several_items_looks_up_once_whether_their_upstream_makes_tasks(tenant: Tenant) -> None:
    upstream = Upstream.objects.create(tenant=tenant, name="books", url="http://127.0.0.1:9/mcp")
    new = {name: {**definition(name), "name": name} for name in ("one", "two", "three")}
    items = observation.store_listing(upstream.pk, ItemKind.TOOL, new)
    with CaptureQueriesContext(connection) as captured:
        service.accept(items)
    assert sum('FROM "tools_app_upstreamstatus"' in query["sql"] for query in captured) == 1


@pytest.mark.anyio
async def test_what_an_upstream_says_as_it_ends_does_not_open_its_connection_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "CHANGE_SECONDS", 0.0)
    lister = Lister()
    lister.may_end.set()
    running = asyncio.all_tasks()
    async with asyncio.timeout(WAIT_SECONDS):
        await lister.connection.client()
        await lister.connection.close()
        await asyncio.gather(*(asyncio.all_tasks() - running))
        assert (lister.opened, lister.closed) == (1, 1)
        with pytest.raises(UpstreamFailed, match="was closed"):
            await lister.connection.client()


@pytest.mark.anyio
async def test_a_session_that_is_being_opened_as_its_connection_is_closed_is_closed_too() -> None:
    lister = Lister()

    async def call() -> None:
        async with lister.connection.session(NO_CAPABILITIES):
            pass

    async with asyncio.timeout(WAIT_SECONDS):
        await lister.connection.client()
        lister.connecting.clear()
        lister.may_connect.clear()
        calling = asyncio.create_task(call())
        await lister.connecting.wait()
        await lister.connection.close()
        lister.may_connect.set()
        with pytest.raises(UpstreamFailed, match="was closed"):
            await calling
    assert (lister.opened, lister.closed) == (2, 2)
