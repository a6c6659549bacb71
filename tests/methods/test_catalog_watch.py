"""The watch of catalogs: shared by all streams, driven by notifications, with polling as a fallback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError

from tools_app.catalog import compiled
from tools_app.catalog.authoring import resource_topic
from tools_app.core.notifications.listener import TopicListener
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.methods import catalog_watch
from tools_app.methods.catalog_watch import CatalogWatch, Change

# A thread of the pool may keep a connection of an earlier test, which it closes itself.
pytestmark = pytest.mark.django_db
WAIT_SECONDS = 30.0
OWN = uuid4()


class Listener(TopicListener):
    """A listener that receives only a test's notifications."""

    def start(self) -> None:
        """Do not use the channel layer."""


class Store:
    """The catalogs of all tenants, with a count of reads."""

    def __init__(self) -> None:
        self.digest = "old"
        self.is_away = False
        self.reads = 0
        self.on_read: Callable[[], object] = lambda: None
        self.cache: RefreshAheadCache[UUID, Any] = RefreshAheadCache(self.load)

    def load(self, keys: Sequence[UUID]) -> Mapping[UUID, Any]:
        self.reads += 1
        self.on_read()
        if self.is_away:
            raise OperationalError
        return {key: SimpleNamespace(digests={"tools": self.digest}, resources={}) for key in keys}

    async def read(self, more: int) -> None:
        """Wait until the catalogs have been read this many more times."""
        loop, read = asyncio.get_running_loop(), asyncio.Semaphore(0)
        self.on_read = lambda: loop.call_soon_threadsafe(read.release)
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(more):
                await read.acquire()
        self.on_read = lambda: None


class Follower:
    """The notifications of one stream."""

    def __init__(self) -> None:
        self.notifications: asyncio.Queue[Change] = asyncio.Queue()
        self.notify = self.notifications.put_nowait

    async def next(self) -> Change:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.notifications.get()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(compiled, "cache", store.cache)
    return store


@asynccontextmanager
async def following(
    listener: TopicListener, *followers: Follower, tenant_id: UUID = OWN
) -> AsyncIterator[CatalogWatch]:
    watch = CatalogWatch(listener)
    for follower in followers:
        await watch.follow(tenant_id, follower.notify, listener)
    yield watch
    for follower in followers:
        watch.leave(tenant_id, follower.notify)


def poll_every(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(catalog_watch, "POLL_SECONDS", seconds)


def test_a_change_without_a_notification_is_told_to_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    poll_every(monkeypatch, 0.01)

    async def scenario() -> list[Change]:
        followers = [Follower() for _ in range(3)]
        async with following(Listener(), *followers):
            store.digest = "new"
            return [await follower.next() for follower in followers]

    assert [change.lists for change in asyncio.run(scenario())] == [{"tools"}] * 3


def test_a_thousand_streams_read_the_catalog_once_for_each_poll_and_have_no_tasks(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll_every(monkeypatch, 0.01)

    async def scenario() -> None:
        followers = [Follower() for _ in range(1000)]
        async with following(Listener(), *followers):
            await store.read(5)
            before = store.reads
            polls = 0
            renew = store.cache.renew

            async def counted(keys: Any) -> None:
                nonlocal polls
                polls += 1
                await renew(keys)

            monkeypatch.setattr(store.cache, "renew", counted)
            await store.read(5)
            assert all(follower.notifications.empty() for follower in followers)
            assert store.reads - before <= polls
            # The test, the poll, the listener, and perhaps a read.
            assert len(asyncio.all_tasks()) <= 4

    asyncio.run(scenario())


def test_all_tenants_are_read_in_one_query(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    poll_every(monkeypatch, 0.01)
    batches: list[int] = []
    load = store.load

    def noted(keys: Sequence[UUID]) -> Mapping[UUID, Any]:
        batches.append(len(keys))
        return load(keys)

    async def scenario() -> None:
        listener, tenants = Listener(), [uuid4() for _ in range(20)]
        watch = CatalogWatch(listener)
        followers = [Follower() for _ in tenants]
        for tenant_id, follower in zip(tenants, followers, strict=True):
            await watch.follow(tenant_id, follower.notify, listener)
        batches.clear()
        await store.read(4)
        for tenant_id, follower in zip(tenants, followers, strict=True):
            watch.leave(tenant_id, follower.notify)

    monkeypatch.setattr(store.cache, "_load", noted)
    asyncio.run(scenario())
    assert set(batches[1:]) == {20}


def test_a_notification_is_told_without_waiting_for_the_poll(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    poll_every(monkeypatch, 2 * WAIT_SECONDS)

    async def scenario() -> tuple[Change, Change]:
        listener, follower = Listener(), Follower()
        listener.handle("catalog", lambda tenant_id: store.cache.forget(UUID(tenant_id)))
        async with following(listener, follower):
            store.digest = "new"
            listener.notify(f"catalog:{OWN}")
            first = await follower.next()
            listener.notify(f"{resource_topic(OWN)}|docs://a")
            return first, await follower.next()

    first, second = asyncio.run(scenario())
    assert (first.lists, first.uris) == ({"tools"}, frozenset())
    assert (second.lists, second.uris) == (frozenset(), {"docs://a"})


def test_a_change_during_an_outage_is_told_after_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    poll_every(monkeypatch, 0.01)

    async def scenario() -> Change:
        follower = Follower()
        async with following(Listener(), follower):
            store.is_away, store.digest = True, "new"
            await store.read(3)
            assert follower.notifications.empty()
            store.is_away = False
            return await follower.next()

    assert asyncio.run(scenario()).lists == {"tools"}


def test_a_stream_that_left_is_told_nothing_and_the_last_one_ends_the_watch(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll_every(monkeypatch, 0.01)

    async def scenario() -> tuple[bool, int]:
        listener, gone, there = Listener(), Follower(), Follower()
        async with following(listener, gone, there) as watch:
            watch.leave(OWN, gone.notify)
            watch.leave(OWN, gone.notify)
            store.digest = "new"
            await there.next()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not (await asyncio.wait(others, timeout=WAIT_SECONDS))[1]
        return gone.notifications.empty(), len(listener._subscriptions)

    assert asyncio.run(scenario()) == (True, 0)


def test_changes_that_come_together_are_one() -> None:
    first = Change(frozenset({"tools"}), frozenset({"docs://a"}), None)
    both = first.followed_by(Change(frozenset({"prompts"}), frozenset({"docs://b"}), None))
    assert (both.lists, both.uris) == ({"tools", "prompts"}, {"docs://a", "docs://b"})
