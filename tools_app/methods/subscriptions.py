"""Streams that tell of changes: the GET stream of the handshake era, `subscriptions/listen` of the modern one."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final
from uuid import UUID

import msgspec
import orjson
from django.db import Error

from tools_app.auth import sessions
from tools_app.auth.principal import Principal
from tools_app.auth.sessions import SessionFacts
from tools_app.events.switchboard import POLL_SECONDS, Switchboard
from tools_app.execution import catalog
from tools_app.execution.authoring import resource_topic
from tools_app.execution.catalog import Catalog
from tools_app.execution.invocation import call_topic
from tools_app.methods import tasks
from tools_app.methods.exchange import Exchange
from tools_app.methods.registry import method
from tools_app.methods.results import EMPTY, SERVER
from tools_app.models.ids import new_id
from tools_app.protocol.errors import INVALID_PARAMS, OVER_LIMIT, RpcError
from tools_app.protocol.inbound import SERVER_META, SUBSCRIPTION_META
from tools_app.protocol.jsonrpc import notification_message, result_message
from tools_app.protocol.sse import Frame
from tools_app.protocol.versions import Era

LISTEN = "subscriptions/listen"
READ = "resources/read"
UPDATED = "notifications/resources/updated"
SILENCE = Frame(b"")
# The lists that may change: their names in a filter of `subscriptions/listen`, and what tells of a change.
LISTS: Final = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}
RESOURCES: Final = "resourceSubscriptions"
TASK_IDS: Final = "taskIds"

Subscribed = Callable[[], Awaitable[frozenset[str]]]


class Change(msgspec.Struct, frozen=True):
    """What is new since the last look: names of lists, and URIs of resources."""

    lists: frozenset[str] = frozenset()
    uris: tuple[str, ...] = ()


async def changes(
    principal: Principal, switchboard: Switchboard, subscribed: Subscribed, *more_topics: str
) -> AsyncGenerator[Change, None]:
    """What changes in a tenant's catalog and in the resources that somebody `subscribed` to and may read.

    A change that says nothing comes at each slow poll, and when one of `more_topics` is rung.

    Once the first value, which says nothing, is there, no change of the catalog is missed.
    """
    tenant_id = principal.tenant_id
    with switchboard.watching(f"catalog:{tenant_id}", resource_topic(tenant_id), *more_topics) as watch:
        before = await _catalog(tenant_id)
        yield Change()
        while True:
            await watch.wait(POLL_SECONDS)
            rung = watch.heard()
            now = await _catalog(tenant_id, before)
            uris = sorted(await _subscribed(subscribed))
            new = (uri for uri in uris if _is_new(uri, before, now, rung) and _may_hear(uri, now, principal))
            yield Change(_told_lists(before, now, principal), tuple(new))
            before = now


async def _catalog(tenant_id: UUID, before: Catalog | None = None) -> Catalog | None:
    """The catalog now; as it was `before` while the store is away, which a stream outlives."""
    try:
        return await catalog.ring.get(tenant_id)
    except Error:
        return before


async def _subscribed(subscribed: Subscribed) -> frozenset[str]:
    try:
        return await subscribed()
    except Error:
        return frozenset()


def _told_lists(before: Catalog | None, now: Catalog | None, principal: Principal) -> frozenset[str]:
    """The lists that changed, as far as the caller may ask for them."""
    return frozenset(name for name in _changed_lists(before, now) if principal.may_ask(f"{name}/list"))


def _changed_lists(before: Catalog | None, now: Catalog | None) -> frozenset[str]:
    if before is now:
        return frozenset()
    old, new = (found.digests if found else {} for found in (before, now))
    return frozenset(name for name in LISTS if old.get(name) != new.get(name))


def _is_new(uri: str, before: Catalog | None, now: Catalog | None, rung: set[str]) -> bool:
    """Whether a resource changed: by its row, or by its own word where a template stands for it.

    One that appeared did too: what its subscriber read of it may be older than its last change.
    """
    if uri in rung:
        return True
    if before is now or before is None or now is None:
        return False
    old, new = before.resources.get(uri), now.resources.get(uri)
    return new is not None and (old is None or old.changed_at != new.changed_at)


def _may_hear(uri: str, now: Catalog | None, principal: Principal) -> bool:
    """Whether the caller could read what `uri` names: of all else nobody hears, not even that it is there."""
    named = now.find_resource(uri) if now else None
    return named is not None and principal.may_use(named[0].name) and principal.may_ask(READ)


async def session_stream(principal: Principal, session: SessionFacts, switchboard: Switchboard) -> AsyncIterator[Frame]:
    """Messages of a handshake-era GET stream; empty ones are chances to see that the stream should end.

    Of several streams of a session only the newest tells of changes: a message goes out once (2025-11-25, transports,
    §Multiple Connections).
    """

    async def subscribed() -> frozenset[str]:
        known = await sessions.ring.get(session.digest)
        return known.subscriptions if known else frozenset()

    me = new_id()
    async with aclosing(changes(principal, switchboard, subscribed)) as news:
        await anext(news)
        # From here on, whatever changes is news to this stream: none is lost between it and the one before.
        await sessions.listen_by(session, me)
        try:
            yield SILENCE
            async for change in news:
                if (change.lists or change.uris) and await _is_listener(session, me):
                    for name in sorted(change.lists):
                        yield Frame(notification_message(LISTS[name][1]))
                    for uri in change.uris:
                        yield Frame(notification_message(UPDATED, {"uri": uri}))
                yield SILENCE
        finally:
            await asyncio.shield(sessions.stop_listening(session, me))


async def _is_listener(session: SessionFacts, me: UUID) -> bool:
    """Whether this stream is the one to tell; it becomes so if the one before it is gone."""
    try:
        return await sessions.is_listener(session, me)
    except Error:
        return True


async def listen(exchange: Exchange) -> AsyncIterator[Frame]:
    """Messages of a `subscriptions/listen` stream: the acknowledgement first, then what was asked for.

    Raises RpcError before the first message: -32602 if the filter is no filter (subscriptions, §Notification Filter),
    -32021 if it names tasks and the client does not know them.
    """
    agreed = _permitted(_filter(exchange.params), exchange.principal)
    uris = frozenset(agreed.get(RESOURCES, ()))
    watched: dict[UUID, Any] = {}
    if TASK_IDS in exchange.params["notifications"] and exchange.principal.may_ask("tasks/get"):
        watched = dict.fromkeys(await tasks.agreed(exchange, exchange.params["notifications"][TASK_IDS]))
        agreed[TASK_IDS] = [tasks.wire_id(id) for id in watched]
    meta = {SUBSCRIPTION_META: exchange.request.id}

    async def subscribed() -> frozenset[str]:
        return uris

    principal = exchange.principal
    topics = map(call_topic, watched)
    async with aclosing(changes(principal, exchange.switchboard, subscribed, *topics)) as news:
        await anext(news)
        yield Frame(
            notification_message("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": agreed})
        )
        async for change in news:
            for name in sorted(change.lists):
                wanted, notification = LISTS[name]
                if wanted in agreed:
                    yield Frame(notification_message(notification, {"_meta": meta}))
            for uri in change.uris:
                yield Frame(notification_message(UPDATED, {"_meta": meta, "uri": uri}))
            async for task in tasks.news(principal, watched):
                yield Frame(notification_message("notifications/tasks", {**task, "_meta": meta}))
            yield SILENCE


def farewell(exchange: Exchange) -> tuple[bytes, bytes]:
    """The messages by which the hub ends a subscription on its own (cancellation; subscriptions, §Graceful Closure)."""
    id = exchange.request.id
    said = {"requestId": id, "reason": "The hub is stopping.", "_meta": {SUBSCRIPTION_META: id}}
    meta = {SUBSCRIPTION_META: id, SERVER_META: SERVER}
    return (
        notification_message("notifications/cancelled", said),
        result_message(id, orjson.dumps({"resultType": "complete", "_meta": meta})),
    )


def _filter(params: Mapping[str, Any]) -> dict[str, Any]:
    """What of a client's wishes the hub agrees to. Raises RpcError."""
    wanted = params.get("notifications")
    if not isinstance(wanted, dict):
        raise _bad("notifications", "must be an object")
    agreed: dict[str, Any] = {}
    for name, _ in LISTS.values():
        if not isinstance(wanted.get(name, False), bool):
            raise _bad(f"notifications.{name}", "must be a boolean")
        if wanted.get(name):
            agreed[name] = True
    uris = wanted.get(RESOURCES, [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise _bad(f"notifications.{RESOURCES}", "must be a list of URIs")
    if len(uris) > sessions.MOST_SUBSCRIPTIONS:
        raise _bad(f"notifications.{RESOURCES}", f"has at most {sessions.MOST_SUBSCRIPTIONS} entries")
    return agreed | ({RESOURCES: uris} if uris else {})


def _permitted(agreed: dict[str, Any], principal: Principal) -> dict[str, Any]:
    """The same without what the caller's key does not let it ask for."""
    if principal.methods is None:
        return agreed
    asking = {wish: f"{name}/list" for name, (wish, _) in LISTS.items()} | {RESOURCES: READ}
    return {wish: value for wish, value in agreed.items() if principal.may_ask(asking[wish])}


def _bad(field: str, problem: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"params.{field} {problem}.", {"field": field}, status=400)


@method("resources/subscribe", Era.HANDSHAKE)
async def subscribe(exchange: Exchange) -> bytes:
    """Tell this session when a resource changes (2025-11-25, resources, §Subscriptions)."""
    assert exchange.session is not None
    if not await sessions.subscribe(exchange.session, _uri(exchange.params)):
        raise RpcError(OVER_LIMIT, f"A session has at most {sessions.MOST_SUBSCRIPTIONS} subscriptions.", status=200)
    return EMPTY


@method("resources/unsubscribe", Era.HANDSHAKE)
async def unsubscribe(exchange: Exchange) -> bytes:
    """Undo `resources/subscribe`; what was not subscribed to is no error."""
    assert exchange.session is not None
    await sessions.unsubscribe(exchange.session, _uri(exchange.params))
    return EMPTY


def _uri(params: Mapping[str, Any]) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "params.uri must be a string.", {"field": "uri"})
    return uri
