"""Streams that tell of changes: the GET stream of the handshake era, `subscriptions/listen` of the modern one."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import UUID

import orjson
from django.db import Error

from tools_app.events.switchboard import POLL_SECONDS, Switchboard
from tools_app.execution import catalog
from tools_app.methods.exchange import Exchange
from tools_app.methods.results import SERVER
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import SERVER_META, SUBSCRIPTION_META
from tools_app.protocol.jsonrpc import notification_message, result_message

LISTEN = "subscriptions/listen"
TOOLS_CHANGED = "notifications/tools/list_changed"


async def catalog_changes(tenant_id: UUID, switchboard: Switchboard) -> AsyncGenerator[bool, None]:
    """True whenever a tenant's catalog has another version than before, False at the start and at each slow poll.

    Once the first value is there, no change is missed.
    """
    with switchboard.watching(f"catalog:{tenant_id}") as watch:
        version = await _version(tenant_id)
        yield False
        while True:
            await watch.wait(POLL_SECONDS)
            now = await _version(tenant_id, version)
            yield now != version
            version = now


async def _version(tenant_id: UUID, before: int | None = None) -> int | None:
    """The version now; as it was `before` while the store is away, which a stream outlives."""
    try:
        found = await catalog.ring.get(tenant_id)
    except Error:
        return before
    return found.version if found else None


async def session_stream(tenant_id: UUID, switchboard: Switchboard) -> AsyncIterator[bytes]:
    """Messages of a handshake-era GET stream; empty ones are chances to see that the stream should end."""
    async for changed in catalog_changes(tenant_id, switchboard):
        yield notification_message(TOOLS_CHANGED) if changed else b""


async def listen(exchange: Exchange) -> AsyncIterator[bytes]:
    """Messages of a `subscriptions/listen` stream: the acknowledgement first, then what was asked for.

    Raises RpcError -32602 before the first message if the filter is no filter (subscriptions, §Notification Filter).
    """
    wanted = _filter(exchange.params)
    meta = {SUBSCRIPTION_META: exchange.request.id}
    agreed = {"toolsListChanged": True} if wanted.get("toolsListChanged") else {}
    async with aclosing(catalog_changes(exchange.principal.tenant_id, exchange.switchboard)) as changes:
        await anext(changes)
        yield notification_message("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": agreed})
        async for changed in changes:
            yield notification_message(TOOLS_CHANGED, {"_meta": meta}) if changed and agreed else b""


def farewell(exchange: Exchange) -> bytes:
    """The response by which the hub ends a subscription on its own (subscriptions, §Graceful Closure)."""
    meta = {SUBSCRIPTION_META: exchange.request.id, SERVER_META: SERVER}
    return result_message(exchange.request.id, orjson.dumps({"resultType": "complete", "_meta": meta}))


def _filter(params: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = params.get("notifications")
    if not isinstance(wanted, dict):
        data = {"field": "notifications"}
        raise RpcError(INVALID_PARAMS, "params.notifications must be an object.", data, status=400)
    for name in ("toolsListChanged", "promptsListChanged", "resourcesListChanged"):
        if not isinstance(wanted.get(name, False), bool):
            raise RpcError(
                INVALID_PARAMS, f"params.notifications.{name} must be a boolean.", {"field": name}, status=400
            )
    return wanted
