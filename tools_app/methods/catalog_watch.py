"""The changes of tenants' catalogs, found once for all streams of an event loop.

A notification is handled at once. In case it was lost, one query compares all watched catalogs every POLL_SECONDS. A
stream that waits for changes costs nothing until there is one.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
from django.db import Error

from tools_app.catalog import compiled
from tools_app.catalog.authoring import resource_topic
from tools_app.catalog.compiled import Catalog
from tools_app.core.notifications.listener import POLL_SECONDS, TopicListener

log = logging.getLogger(__name__)

# How long to wait for a notification: the poll is elsewhere.
NOTIFIED_SECONDS: Final = 3600.0


class Change(msgspec.Struct, frozen=True):
    """What changed in a catalog: names of its digests, and URIs of resources. `catalog` is the current one."""

    lists: frozenset[str]
    uris: frozenset[str]
    catalog: Catalog | None

    def followed_by(self, later: "Change") -> "Change":
        """Return both changes as one."""
        return Change(self.lists | later.lists, self.uris | later.uris, later.catalog)


Tell = Callable[[Change], None]


class CatalogWatch:
    """The watched catalogs of one event loop."""

    def __init__(self) -> None:
        self._tenants: dict[UUID, _TenantWatch] = {}
        self._polling: asyncio.Task[None] | None = None

    async def follow(self, tenant_id: UUID, tell: Tell, listener: TopicListener) -> None:
        """Call `tell` with each change of a tenant's catalog from now on, until `leave`."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = _TenantWatch(tenant_id, listener)
        tenant.followers.add(tell)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            await tenant.started.wait()
        except asyncio.CancelledError:
            self.leave(tenant_id, tell)
            raise

    def leave(self, tenant_id: UUID, tell: Tell) -> None:
        """Undo `follow`."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            return
        tenant.followers.discard(tell)
        if not tenant.followers:
            del self._tenants[tenant_id]
            tenant.stop()
        if not self._tenants and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await compiled.cache.renew(list(self._tenants))
                for tenant in list(self._tenants.values()):
                    await tenant.compare()
            except Error:
                # Streams wait until the database is back.
                continue
            except Exception as problem:  # noqa: BLE001 - one broken catalog must not silence all streams
                log.warning("Catalogs could not be compared: %r", problem)


class _TenantWatch:
    """One tenant's catalog as its `followers` know it."""

    def __init__(self, tenant_id: UUID, listener: TopicListener) -> None:
        self.followers: set[Tell] = set()
        self.started = asyncio.Event()
        self._tenant_id = tenant_id
        self._known: Catalog | None = None
        self._comparing = asyncio.Lock()
        self._task = asyncio.create_task(self._hear(listener))

    def stop(self) -> None:
        """Stop listening for notifications."""
        self._task.cancel()

    async def compare(self) -> None:
        """Tell the followers what changed since the last time. Raises the database's error."""
        async with self._comparing:
            self._tell(await compiled.cache.get(self._tenant_id), frozenset())

    async def _hear(self, listener: TopicListener) -> None:
        with listener.subscribe(f"catalog:{self._tenant_id}", resource_topic(self._tenant_id)) as subscription:
            self._known = await self._catalog()
            self.started.set()
            while True:
                await subscription.wait(NOTIFIED_SECONDS)
                uris = frozenset(subscription.take_details())
                async with self._comparing:
                    self._tell(await self._catalog(), uris)

    async def _catalog(self) -> Catalog | None:
        """Return the current catalog, or the known one while it cannot be read."""
        try:
            return await compiled.cache.get(self._tenant_id)
        except Exception as problem:  # noqa: BLE001 - the database may be away; the poll tries again
            log.warning("The catalog of tenant %s could not be read: %r", self._tenant_id, problem)
            return self._known

    def _tell(self, now: Catalog | None, uris: frozenset[str]) -> None:
        before, self._known = self._known, now
        change = Change(_changed_lists(before, now), uris | _changed_uris(before, now), now)
        if change.lists or change.uris:
            for tell in list(self.followers):
                tell(change)


def _changed_lists(before: Catalog | None, now: Catalog | None) -> frozenset[str]:
    if before is now:
        return frozenset()
    old, new = (found.digests if found else {} for found in (before, now))
    return frozenset(name for name in {*old, *new} if old.get(name) != new.get(name))


def _changed_uris(before: Catalog | None, now: Catalog | None) -> frozenset[str]:
    """Return the resources whose rows changed. A notification names those of a template.

    A resource that appeared counts as changed: a subscriber's copy may be older than its last change.
    """
    if before is now or before is None or now is None:
        return frozenset()
    old = {uri: resource.changed_at for uri, resource in before.resources.items()}
    return frozenset(uri for uri, resource in now.resources.items() if old.get(uri) != resource.changed_at)


_watches: WeakKeyDictionary[TopicListener, CatalogWatch] = WeakKeyDictionary()


def watch_of(listener: TopicListener) -> CatalogWatch:
    """Return the watch of the listener's event loop."""
    watch = _watches.get(listener)
    if watch is None:
        watch = _watches[listener] = CatalogWatch()
    return watch
