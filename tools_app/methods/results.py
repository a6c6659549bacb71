"""Results as JSON, with what the modern era wants in each of them."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tools_app.protocol.inbound import SERVER_META
from tools_app.protocol.versions import Era

SERVER: Final = {"name": "mcphub", "title": "mcphub", "version": "0.1.0"}
LIST_TTL_MS: Final = 60_000

# What an empty result is in the handshake era.
EMPTY: Final = b"{}"

_STALE: Final = b',"ttlMs":0,"cacheScope":"private"}'
_META: Final = orjson.dumps({SERVER_META: SERVER})


def rendered(result: Mapping[str, Any], era: Era) -> bytes:
    """A complete result (2026-07-28, base protocol, §ResultType and §Per-response protocol fields)."""
    if era is Era.HANDSHAKE:
        return orjson.dumps(result)
    return orjson.dumps({"resultType": "complete", **result, "_meta": {SERVER_META: SERVER}})


def complete(result: bytes, era: Era) -> bytes:
    """The same around a result that is a JSON object already, and not an empty one."""
    return result if era is Era.HANDSHAKE else b'{"resultType":"complete",%b,"_meta":%b}' % (result[1:-1], _META)


def once(result: bytes, era: Era) -> bytes:
    """The same for what may have changed by the next time: it is fresh only when it arrives (caching)."""
    return complete(result, era) if era is Era.HANDSHAKE else complete(result[:-1] + _STALE, era)


def cacheable(result: Mapping[str, Any], era: Era) -> bytes:
    """A complete result with caching hints (caching, §Cacheable Results); lists differ by key, so they are private."""
    if era is Era.HANDSHAKE:
        return rendered(result, era)
    return rendered({**result, "ttlMs": LIST_TTL_MS, "cacheScope": "private"}, era)
