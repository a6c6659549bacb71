"""The changes of tenants' catalogs, found once for all streams of an event loop.

A notification is handled at once. In case it was lost, one query compares all watched catalogs every POLL_SECONDS. A
stream that waits for changes costs nothing until there is one. Resources of upstreams are subscribed to there, while
any stream wants to hear of them.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
from django.db import Error

from tools_app.catalog import compiled
from tools_app.catalog.authoring import resource_topic
from tools_app.catalog.compiled import Catalog
from tools_app.catalog.kinds.upstream.runner import Endpoint, UpstreamReader
from tools_app.core.notifications import publish
from tools_app.core.notifications.listener import POLL_SECONDS, TopicListener
from tools_app.upstreams import connections
from tools_app.upstreams.credentials import resolve
from tools_app.upstreams.exchanges import pages

log = logging.getLogger(__name__)

# How long to wait for a notification: the poll is elsewhere.
NOTIFIED_SECONDS: Final = 3600.0
# How long a new subscription waits for the upstreams that it concerns.
UPSTREAM_SECONDS: Final = 2.0
# The subscriptions of all sessions are read again after so many polls: a notification may have been lost.
POLLS_TO_READ: Final = 20
SUBSCRIBED: Final = "subscribed"


class Change(msgspec.Struct, frozen=True):
    """What changed in a catalog: names of its digests, and URIs of resources. `catalog` is the current one."""

    lists: frozenset[str]
    uris: frozenset[str]
    catalog: Catalog | None

    def followed_by(self, later: "Change") -> "Change":
        """Return both changes as one."""
        return Change(self.lists | later.lists, self.uris | later.uris, later.catalog)


OnChange = Callable[[Change], None]
OnReread = Callable[[], Awaitable[None]]
Completed = Callable[[str], None]


class CatalogWatch:
    """The watched catalogs of one event loop, and the streams of sessions, whose subscriptions may change."""

    def __init__(self, listener: TopicListener) -> None:
        self._tenants: dict[UUID, _TenantWatch] = {}
        self._sessions: defaultdict[str, set[OnReread]] = defaultdict(set)
        self._rereading: set[asyncio.Task[None]] = set()
        self._pages: defaultdict[str, set[Completed]] = defaultdict(set)
        listener.handle(SUBSCRIBED, self._reread_later)
        listener.handle(pages.TOPIC, self._completed)
        self._polling: asyncio.Task[None] | None = None

    async def follow(self, tenant_id: UUID, on_change: OnChange, listener: TopicListener) -> None:
        """Call `on_change` with each change of a tenant's catalog from now on, until `leave`."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = _TenantWatch(tenant_id, listener)
        tenant.followers.setdefault(on_change, frozenset())
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            await tenant.started.wait()
        except asyncio.CancelledError:
            self.leave(tenant_id, on_change)
            raise

    def leave(self, tenant_id: UUID, on_change: OnChange) -> None:
        """Undo `follow`."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            return
        if tenant.followers.pop(on_change, None):
            tenant.follow_later()
        if not tenant.followers:
            del self._tenants[tenant_id]
            tenant.stop()
        if not self._tenants and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    def want(self, tenant_id: UUID, on_change: OnChange, uris: frozenset[str]) -> None:
        """Let a follower hear of these resources, also if an upstream tells of their updates."""
        tenant = self._tenants.get(tenant_id)
        if tenant is not None and tenant.followers.get(on_change, uris) != uris:
            tenant.followers[on_change] = uris
            tenant.follow_later()

    async def wait_asked(self, tenant_id: UUID, on_change: OnChange) -> None:
        """Wait until the upstreams were asked for what a follower wants by now, for UPSTREAM_SECONDS at most."""
        tenant = self._tenants.get(tenant_id)
        if tenant is not None and tenant.followers.get(on_change) and tenant.following is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(UPSTREAM_SECONDS):
                    await asyncio.shield(tenant.following)

    def add_session(self, session_id: UUID, reread: OnReread, completed: Completed) -> None:
        """Call `reread` when the subscriptions of a session may have changed, until `remove_session`.

        `completed` is called with the ids of pages that are done with, to which the session's client was sent.
        """
        self._sessions[str(session_id)].add(reread)
        self._pages[str(session_id)].add(completed)

    def remove_session(self, session_id: UUID, reread: OnReread, completed: Completed) -> None:
        """Undo `add_session`."""
        self._sessions[str(session_id)].discard(reread)
        self._pages[str(session_id)].discard(completed)
        if not self._sessions[str(session_id)]:
            del self._sessions[str(session_id)], self._pages[str(session_id)]

    def _completed(self, named: str) -> None:
        with suppress(ValueError):
            session_id, id = pages.parse_topic(named)
            for completed in list(self._pages.get(session_id, ())):
                completed(id)

    async def subscribed(self, session_id: UUID) -> None:
        """Let the streams of a session, in all processes, follow its subscriptions; waits for those of this loop."""
        publish.notify(f"{SUBSCRIBED}:{session_id}")
        for reread in list(self._sessions.get(str(session_id), ())):
            await reread()

    def _reread_later(self, session_id: str) -> None:
        for reread in list(self._sessions.get(session_id, ())):
            task = asyncio.ensure_future(reread())
            self._rereading.add(task)
            task.add_done_callback(self._rereading.discard)

    async def _poll(self) -> None:
        polls = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            polls += 1
            if polls % POLLS_TO_READ == 0:
                for session_id in list(self._sessions):
                    self._reread_later(session_id)
                for tenant in list(self._tenants.values()):
                    tenant.follow_credentials()
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
        self.followers: dict[OnChange, frozenset[str]] = {}
        self.started = asyncio.Event()
        self.following: asyncio.Future[None] | None = None
        self._tenant_id = tenant_id
        self._known: Catalog | None = None
        self._comparing = asyncio.Lock()
        self._wanted: dict[Endpoint, frozenset[str]] = {}
        self._is_stale = False
        self._needs_credentials = False
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = asyncio.create_task(self._hear(listener))

    def stop(self) -> None:
        """Stop listening for notifications."""
        if self._task is not None:
            self._task.cancel()
            # The traceback of its end refers to this watch, a reference cycle.
            self._task = None

    def follow_later(self) -> None:
        """Ask the upstreams for the resources that are wanted now; `following` is done when they were asked."""
        self._is_stale = True
        if self.following is None or self.following.done():
            self.following = asyncio.ensure_future(self._follow_upstreams())

    def follow_credentials(self) -> None:
        """Ask upstreams with another credential, if theirs has changed: a token is replaced before it expires."""
        if self._needs_credentials:
            self.follow_later()

    async def _follow_upstreams(self) -> None:
        while self._is_stale:
            self._is_stale = False
            named = _of_upstreams(self._known, frozenset().union(*self.followers.values()))
            self._needs_credentials = any(endpoint.sign_in is not None for endpoint in named)
            wanted = await _with_credentials(named)
            if wanted == self._wanted:
                continue
            self._wanted = wanted
            running = connections.current() if wanted else connections.current.running()
            if running is not None:
                with suppress(RuntimeError):  # the connections are closed: the hub stops
                    await asyncio.wrap_future(running.submit(running.watch(self, wanted, self._updated)))

    def _updated(self, uris: frozenset[str]) -> None:
        """Take updated resources; called on the loop of the connections."""
        with suppress(RuntimeError):  # this loop has ended
            self._loop.call_soon_threadsafe(lambda: self._publish(self._known, uris))

    async def compare(self) -> None:
        """Tell the followers what changed since the last time. Raises the database's error."""
        async with self._comparing:
            self._publish(await compiled.cache.get(self._tenant_id), frozenset())

    async def _hear(self, listener: TopicListener) -> None:
        with listener.subscribe(f"catalog:{self._tenant_id}", resource_topic(self._tenant_id)) as subscription:
            self._known = await self._catalog()
            self.started.set()
            while True:
                await subscription.wait(NOTIFIED_SECONDS)
                uris = frozenset(subscription.take_details())
                async with self._comparing:
                    self._publish(await self._catalog(), uris)

    async def _catalog(self) -> Catalog | None:
        """Return the current catalog, or the known one while it cannot be read."""
        try:
            return await compiled.cache.get(self._tenant_id)
        except Exception as problem:  # noqa: BLE001 - the database may be away; the poll tries again
            log.warning("The catalog of tenant %s could not be read: %r", self._tenant_id, problem)
            return self._known

    def _publish(self, now: Catalog | None, uris: frozenset[str]) -> None:
        before, self._known = self._known, now
        change = Change(_changed_lists(before, now), uris | _changed_uris(before, now), now)
        if now is not before and any(self.followers.values()):
            self.follow_later()
        if change.lists or change.uris:
            for on_change in list(self.followers):
                on_change(change)


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


def _of_upstreams(catalog: Catalog | None, uris: frozenset[str]) -> dict[Endpoint, frozenset[str]]:
    """Return those of the URIs that can be read at an upstream, by its endpoint."""
    found: defaultdict[Endpoint, set[str]] = defaultdict(set)
    if catalog is None:
        return {}
    for uri in uris:
        named = catalog.find_resource(uri)
        if named is not None and isinstance(named[0].read, UpstreamReader) and named[0].read.source.endpoint:
            found[named[0].read.source.endpoint].add(uri)
    return {endpoint: frozenset(some) for endpoint, some in found.items()}


async def _with_credentials(wanted: Mapping[Endpoint, frozenset[str]]) -> dict[Endpoint, frozenset[str]]:
    """Return the endpoints with the tenant's credential. Those whose calls use others are not followed."""
    found: dict[Endpoint, frozenset[str]] = {}
    for endpoint, uris in wanted.items():
        try:
            usable = await resolve.endpoint_for_tenant(endpoint)
        except Error as problem:
            log.warning("The credential of an upstream could not be read: %r", problem)
            continue
        if usable is not None:
            found[usable] = uris
    return found


_watches: WeakKeyDictionary[TopicListener, CatalogWatch] = WeakKeyDictionary()


def catalog_watch(listener: TopicListener) -> CatalogWatch:
    """Return the watch of the listener's event loop."""
    watch = _watches.get(listener)
    if watch is None:
        watch = _watches[listener] = CatalogWatch(listener)
    return watch
