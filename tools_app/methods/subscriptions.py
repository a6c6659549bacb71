"""Change notifications: the GET stream of the handshake era and `subscriptions/listen` of the modern era."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from django.db import Error

from tools_app.calls import sessions
from tools_app.calls.events import page_completed
from tools_app.calls.invocation import call_topic
from tools_app.calls.request import EMPTY, RequestContext
from tools_app.calls.sessions import SessionFacts
from tools_app.catalog import compiled, presentation
from tools_app.core.ids import new_id
from tools_app.core.notifications.listener import POLL_SECONDS, TopicListener
from tools_app.identity.principal import Principal
from tools_app.methods import tasks
from tools_app.methods.catalog_watch import Change, catalog_watch
from tools_app.methods.registry import method
from tools_app.protocol import exact_json
from tools_app.protocol.errors import INVALID_PARAMS, OVER_LIMIT, RpcError, resource_not_found
from tools_app.protocol.inbound import SERVER, SERVER_META, SUBSCRIPTION_META
from tools_app.protocol.jsonrpc import MAX_URI_LENGTH, RequestId, check_text, notification_message, result_message
from tools_app.protocol.sse import Frame
from tools_app.protocol.versions import Era

LISTEN = "subscriptions/listen"
READ = "resources/read"
SUBSCRIBE = "resources/subscribe"
UPDATED = "notifications/resources/updated"
EMPTY_FRAME = Frame(b"")
# The lists that may change: their names in a filter of `subscriptions/listen`, and their notifications.
LISTS: Final = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}
RESOURCES: Final = "resourceSubscriptions"
# Pages whose completion waits for one stream. Further ones are not told.
MAX_PAGES: Final = 100
TASK_IDS: Final = "taskIds"


class ChangeStream:
    """A stream of one client that tells of changes.

    `open` returns the first messages. From then on, `wake` is called when `take` has messages to return.
    """

    def __init__(self, principal: Principal, listener: TopicListener) -> None:
        self._principal = principal
        self._listener = listener
        self._change: Change | None = None
        self._wake: Callable[[], None] = _nothing

    async def open(self, wake: Callable[[], None]) -> list[Frame]:
        """Start to follow the changes: none from now on is missed. Call `close` afterwards, even if this fails."""
        self._wake = wake
        await catalog_watch(self._listener).follow(self._principal.tenant_id, self._on_change, self._listener)
        return []

    async def take(self) -> list[Frame]:
        """Return the messages since the last call."""
        change, self._change = self._change, None
        return await self._messages(change) if change is not None else []

    async def close(self) -> None:
        """Stop following. It does all it has to even if the request is cancelled meanwhile."""
        # Otherwise the stream and what it wakes would be left to the garbage collector.
        self._wake = _nothing
        catalog_watch(self._listener).leave(self._principal.tenant_id, self._on_change)

    async def _want(self, uris: Collection[str]) -> None:
        """Hear of these resources, as far as the caller may read them, also if an upstream tells of their updates."""
        tenant_id = self._principal.tenant_id
        now = await compiled.cache.get(tenant_id) if uris else None
        readable = frozenset(uri for uri in uris if compiled.permits_uri(now, self._principal, READ, uri))
        catalog_watch(self._listener).want(tenant_id, self._on_change, readable)

    async def _wait_asked(self) -> None:
        """Wait a little until the upstreams were asked to tell of the wanted resources."""
        await catalog_watch(self._listener).wait_asked(self._principal.tenant_id, self._on_change)

    def _on_change(self, change: Change) -> None:
        self._change = self._change.followed_by(change) if self._change is not None else change
        self._wake()

    async def _messages(self, change: Change) -> list[Frame]:
        raise NotImplementedError

    def _lists(self, change: Change) -> list[str]:
        """Return the changed lists that the caller may request. Its list of tools depends on its toolset, too."""
        lists = change.lists.intersection(LISTS)
        if any(presentation.affects_tools(name, self._principal) for name in change.lists.difference(LISTS)):
            lists |= {"tools"}
        return sorted(name for name in lists if self._principal.permits_method(f"{name}/list"))

    def _uris(self, change: Change, subscribed: Collection[str]) -> list[str]:
        """Return the changed resources among the `subscribed` that the caller may read. No other is revealed."""
        changed = sorted(change.uris.intersection(subscribed))
        return [uri for uri in changed if compiled.permits_uri(change.catalog, self._principal, READ, uri)]


def _nothing() -> None:
    """Do nothing: the stream is not open."""


async def messages(stream: ChangeStream) -> AsyncGenerator[Frame, None]:
    """Yield the messages of a stream as they come, after an empty one when it is open."""
    woken = asyncio.Event()
    try:
        for frame in [EMPTY_FRAME, *await stream.open(woken.set)]:
            yield frame
        while True:
            await woken.wait()
            woken.clear()
            for frame in await stream.take():
                yield frame
    finally:
        await stream.close()


class SessionStream(ChangeStream):
    """The stream of a handshake-era session.

    Only the newest stream of a session sends changes, because a message is sent once (2025-11-25, transports, §Multiple
    Connections).
    """

    def __init__(self, principal: Principal, session: SessionFacts, listener: TopicListener) -> None:
        super().__init__(principal, listener)
        self._session = session
        self._id = new_id()
        self._reading = asyncio.Lock()
        # Ids of pages that are done with.
        self._pages: list[str] = []

    async def open(self, wake: Callable[[], None]) -> list[Frame]:
        """Start to follow the changes. Raises the database's error."""
        first = await super().open(wake)
        catalog_watch(self._listener).add_session(self._session.id, self._follow_resources, self._note_page)
        # Changes from here on are sent on this stream, so none is lost between the previous stream and this one.
        await sessions.set_listener(self._session, self._id)
        await self._follow_resources()
        return first

    async def close(self) -> None:
        """Stop following, and let another stream of the session send its changes."""
        catalog_watch(self._listener).remove_session(self._session.id, self._follow_resources, self._note_page)
        await super().close()
        await asyncio.shield(sessions.clear_listener(self._session, self._id))

    async def _messages(self, change: Change) -> list[Frame]:
        lists, uris = self._lists(change), self._uris(change, await self._subscribed() if change.uris else ())
        if not (lists or uris) or not await self._is_listener():
            return []
        frames = [Frame(notification_message(LISTS[name][1])) for name in lists]
        return frames + [Frame(notification_message(UPDATED, {"uri": uri})) for uri in uris]

    def _note_page(self, id: str) -> None:
        if len(self._pages) < MAX_PAGES:
            self._pages.append(id)
            self._wake()

    async def take(self) -> list[Frame]:
        """Return the messages since the last call."""
        frames = await super().take()
        ids, self._pages = self._pages, []
        messages = [message for id in ids if (message := page_completed(id, self._session.version))]
        return [*frames, *map(Frame, messages)] if messages and await self._is_listener() else frames

    async def _follow_resources(self) -> None:
        """Follow the resources that the session has subscribed to by now; returns when the upstreams were asked."""
        # Of two readings at a time, the one that began first must not have the last word.
        async with self._reading:
            await self._want(await self._subscribed())
        await self._wait_asked()

    async def _subscribed(self) -> frozenset[str]:
        try:
            # Any process may have changed it.
            known = await sessions.cache.fresh(self._session.digest)
        except Error:
            return frozenset()
        return known.subscriptions if known else frozenset()

    async def _is_listener(self) -> bool:
        """Whether this stream is the one that sends changes; it takes over if the previous one has ended."""
        try:
            return await sessions.is_listener(self._session, self._id)
        except Error:
            return True


class ListenStream(ChangeStream):
    """A `subscriptions/listen` stream: the acknowledgement, then the requested notifications."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context.principal, context.listener)
        self._context: RequestContext | None = context
        self._meta = {SUBSCRIPTION_META: context.request.id}
        self._agreed: dict[str, Any] = {}
        self._tasks: dict[UUID, Any] = {}
        self._watching: asyncio.Task[None] | None = None

    async def open(self, wake: Callable[[], None]) -> list[Frame]:
        """Start to follow the changes and return the acknowledgement.

        Raises RpcError: -32602 for an invalid filter (subscriptions, §Notification Filter), -32021 if it names tasks
        and the client does not support them.
        """
        context, self._context = self._context, None
        assert context is not None, "opened once"
        self._agreed = await self._agree(context)
        await super().open(wake)
        await self._want(self._agreed.get(RESOURCES, ()))
        await self._wait_asked()
        if self._tasks:
            self._watching = asyncio.create_task(self._watch_tasks())
        params = {"_meta": self._meta, "notifications": self._agreed}
        return [Frame(notification_message("notifications/subscriptions/acknowledged", params))]

    async def _agree(self, context: RequestContext) -> dict[str, Any]:
        agreed = _permitted(_filter(context.params), context.principal)
        if RESOURCES in agreed:
            # The acknowledgement contains what is accepted: unknown URIs are left out (subscriptions, §Acknowledgment).
            now = await compiled.cache.get(context.principal.tenant_id)
            agreed[RESOURCES] = [
                uri for uri in agreed[RESOURCES] if compiled.permits_uri(now, context.principal, READ, uri)
            ]
        if TASK_IDS in context.params["notifications"] and context.principal.permits_method("tasks/get"):
            self._tasks = dict.fromkeys(await tasks.permitted_ids(context, context.params["notifications"][TASK_IDS]))
            agreed[TASK_IDS] = [tasks.wire_id(id) for id in self._tasks]
        return agreed

    async def take(self) -> list[Frame]:
        """Return the messages since the last call."""
        frames = await super().take()
        # A task that cannot be read now is read again at the next poll.
        with suppress(Error):
            async for task in tasks.task_updates(self._principal, self._tasks):
                frames.append(Frame(notification_message("notifications/tasks", {**task, "_meta": self._meta})))
        return frames

    async def close(self) -> None:
        """Stop following."""
        await super().close()
        if self._watching is not None:
            self._watching.cancel()

    async def _messages(self, change: Change) -> list[Frame]:
        names = [name for name in self._lists(change) if LISTS[name][0] in self._agreed]
        frames = [Frame(notification_message(LISTS[name][1], {"_meta": self._meta})) for name in names]
        uris = self._uris(change, self._agreed.get(RESOURCES, ()))
        return frames + [Frame(notification_message(UPDATED, {"_meta": self._meta, "uri": uri})) for uri in uris]

    async def _watch_tasks(self) -> None:
        """Wake the stream on each notification of a task, and at each slow poll, until all tasks have ended."""
        with self._listener.subscribe(*map(call_topic, self._tasks)) as subscription:
            while self._tasks:
                await subscription.wait(POLL_SECONDS)
                self._wake()


def stream_end_messages(id: RequestId, *, stopping: bool) -> tuple[bytes, bytes]:
    """Return the messages by which the hub ends a subscription (cancellation; subscriptions, §Graceful Closure)."""
    reason = "The hub is stopping." if stopping else "The API key or its scopes changed. Subscribe again."
    params = {"requestId": id, "reason": reason, "_meta": {SUBSCRIPTION_META: id}}
    meta = {SUBSCRIPTION_META: id, SERVER_META: SERVER}
    return (
        notification_message("notifications/cancelled", params),
        result_message(id, exact_json.dumps({"resultType": "complete", "_meta": meta})),
    )


def _filter(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a client's filter that the hub accepts. Raises RpcError."""
    wanted = params.get("notifications")
    if not isinstance(wanted, dict):
        raise _invalid_filter("notifications", "must be an object")
    agreed: dict[str, Any] = {}
    for name, _ in LISTS.values():
        if not isinstance(wanted.get(name, False), bool):
            raise _invalid_filter(f"notifications.{name}", "must be a boolean")
        if wanted.get(name):
            agreed[name] = True
    uris = wanted.get(RESOURCES, [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise _invalid_filter(f"notifications.{RESOURCES}", "must be a list of URIs")
    if len(uris) > sessions.MAX_SUBSCRIPTIONS:
        raise _invalid_filter(f"notifications.{RESOURCES}", f"has at most {sessions.MAX_SUBSCRIPTIONS} entries")
    for uri in uris:
        check_text(uri, f"notifications.{RESOURCES}", MAX_URI_LENGTH)
    return agreed | ({RESOURCES: uris} if uris else {})


def _permitted(agreed: dict[str, Any], principal: Principal) -> dict[str, Any]:
    """Return the part of the filter that the caller's key permits."""
    asking = {wish: f"{name}/list" for name, (wish, _) in LISTS.items()} | {RESOURCES: READ}
    return {wish: value for wish, value in agreed.items() if principal.permits_method(asking[wish])}


def _invalid_filter(field: str, problem: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"params.{field} {problem}.", {"field": field}, status=400)


@method(SUBSCRIBE, Era.HANDSHAKE)
async def subscribe(context: RequestContext) -> bytes:
    """Subscribe the session to changes of a resource (2025-11-25, resources, §Subscriptions).

    Raises RpcError -32002 for a URI that the caller may not read or that does not exist (§Error Handling).
    """
    assert context.session is not None
    uri = _uri(context.params)
    found = await compiled.cache.get(context.principal.tenant_id)
    if not all(compiled.permits_uri(found, context.principal, name, uri) for name in (SUBSCRIBE, READ)):
        raise resource_not_found(uri, modern=False)
    if not await sessions.subscribe(context.session, uri):
        bounds = f"{sessions.MAX_SUBSCRIPTIONS} subscriptions, of {sessions.MAX_SUBSCRIBED_LENGTH} characters together"
        raise RpcError(OVER_LIMIT, f"A session has at most {bounds}.", status=200)
    await catalog_watch(context.listener).subscribed(context.session.id)
    return EMPTY


@method("resources/unsubscribe", Era.HANDSHAKE)
async def unsubscribe(context: RequestContext) -> bytes:
    """Undo `resources/subscribe`; a URI without a subscription is ignored."""
    assert context.session is not None
    await sessions.unsubscribe(context.session, _uri(context.params))
    await catalog_watch(context.listener).subscribed(context.session.id)
    return EMPTY


def _uri(params: Mapping[str, Any]) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "params.uri must be a string.", {"field": "uri"})
    check_text(uri, "uri", MAX_URI_LENGTH)
    return uri
