"""Open streams of this process: their keep-alives, and their end when the hub stops or their key or session is invalid.

One task checks all of them, so that a thousand idle streams cost two queries, and a revoked key loses its streams
within a second. It looks closer at a stream whose key changed. One timer keeps all streams of an event loop alive.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from math import ceil
from typing import Final
from uuid import UUID

from tools_app.calls import sessions
from tools_app.calls.sessions import SessionFacts
from tools_app.core.config import config
from tools_app.identity import principal
from tools_app.identity.principal import Credential, Principal
from tools_app.tenants import last_used

log = logging.getLogger(__name__)

GUARD_SECONDS = 0.5


class OpenStream:
    """One open stream, with or without a key.

    `resolve` returns its caller now, None if the key is invalid by now; streams of the same `identity` have the same
    caller. `permits` tells whether the stream may continue for a caller that changed.
    """

    def __init__(
        self,
        credential: Credential | None,
        session: SessionFacts | None,
        resolve: Callable[[], Awaitable[Principal | None]],
        permits: Callable[[Principal], bool],
        identity: Hashable = None,
    ) -> None:
        # Impersonation tokens are checked one by one: there are few, and they are short-lived.
        self.key_digest = credential.digest if credential and not credential.is_impersonation else None
        self.session: SessionFacts | None = session
        self.resolve = resolve
        self.identity: Hashable = self if identity is None else identity
        self.is_ended = False
        self._on_end: Callable[[], object] = _nothing
        self._permits = permits
        # The caller for whom the stream was permitted.
        self.permitted: Principal | None = None

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the stream is asked to end."""
        self._on_end = callback

    def end(self) -> None:
        """Ask the stream to end gracefully."""
        if not self.is_ended:
            self.is_ended = True
            self._on_end()

    def may_continue_for(self, caller: Principal | None) -> bool:
        """Whether the stream may continue. A caller that did not change since the last time is not checked again."""
        if caller is None or not (caller is self.permitted or self._permits(caller)):
            return False
        self.permitted = caller
        return True

    def check_again(self) -> None:
        """Let `permits` decide again, because it changed."""
        self.permitted = None


def _nothing() -> None:
    """Do nothing: nothing waits for the stream's end."""


class OpenStreams:
    """All open streams of one event loop, and the task that checks them."""

    def __init__(self) -> None:
        self._streams: set[OpenStream] = set()
        self._callers: dict[Hashable, Principal | None] = {}
        self._key_states: Mapping[str, Hashable] = {}
        self._guard: asyncio.Task[None] | None = None

    def add(self, stream: OpenStream) -> None:
        """Add a stream that starts."""
        self._streams.add(stream)
        if self._guard is None or self._guard.done():
            self._guard = asyncio.get_running_loop().create_task(self._watch())

    def remove(self, stream: OpenStream) -> None:
        """Remove a closed stream, and what it would call at its end, which often refers to the stream."""
        self._streams.discard(stream)
        stream.on_end(_nothing)

    def end_all(self) -> None:
        """Ask every stream to end gracefully."""
        for stream in list(self._streams):
            stream.end()

    def __len__(self) -> int:
        return len(self._streams)

    async def _watch(self) -> None:
        while self._streams:
            await asyncio.sleep(GUARD_SECONDS)
            try:
                await self._check()
            except Exception as problem:  # noqa: BLE001 - the store may be away; streams go on until it is back
                log.warning("Open streams could not be checked: %s", problem)

    async def _check(self) -> None:
        streams = list(self._streams)
        sessions_of = {stream.session.digest: stream.session.id for stream in streams if stream.session}
        # Not all but the open ones: a connection may get its session during this query.
        ended_sessions = sessions_of.keys() - await sessions.open_digests(sessions_of)
        keys = {stream.key_digest for stream in streams if stream.key_digest}
        key_states = await principal.key_states(keys)
        # Keys that are not valid now are missing from `key_states`.
        same = {digest for digest, found in key_states.items() if self._key_states.get(digest) == found}
        await principal.cache.renew(keys - same)
        callers: dict[Hashable, Principal | None] = {}
        used: set[UUID] = set()
        for stream in streams:
            if stream.session is not None and stream.session.digest in ended_sessions:
                stream.end()
            elif stream.permitted is not None and stream.key_digest in same:
                if stream.permitted.key_id is not None:
                    used.add(stream.permitted.key_id)
            else:
                if stream.identity not in callers:
                    callers[stream.identity] = await self._caller(stream)
                if not stream.may_continue_for(callers[stream.identity]):
                    stream.end()
        last_used.keys_used(used)
        self._callers, self._key_states = callers, key_states

    async def _caller(self, stream: OpenStream) -> Principal | None:
        """Return a stream's caller: the same object as the last time, unless the caller changed."""
        before, now = self._callers.get(stream.identity), await stream.resolve()
        return before if now == before else now


# The checks per interval, and the part of it after which a stream may be called early, to spread simultaneous calls.
TICKS: Final = 20
EARLY: Final = 0.75


class KeepAliveTimer:
    """Calls each stream that was idle for MCPHUB_KEEPALIVE_INTERVAL, or slightly less.

    Streams that started together are called at different times: a thousand calls at once would delay requests. Belongs
    to one event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The longest idle first.
        self._active_at: OrderedDict[Callable[[], None], float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self._active_at)

    def note_activity(self, callback: Callable[[], None]) -> None:
        """Note that the stream of `callback` started or sent something."""
        self._active_at[callback] = self._loop.time()
        self._active_at.move_to_end(callback)
        if self._timer is None:
            self._timer = self._loop.call_later(config.MCPHUB_KEEPALIVE_INTERVAL / TICKS, self._tick)

    def remove(self, callback: Callable[[], None]) -> None:
        """Remove a stream that ended."""
        self._active_at.pop(callback, None)

    def _tick(self) -> None:
        seconds = float(config.MCPHUB_KEEPALIVE_INTERVAL)
        tick, now = seconds / TICKS, self._loop.time()
        share = ceil(len(self._active_at) / (TICKS - 1))
        for called, callback in enumerate(self._due(now - EARLY * seconds)):
            if called >= share and self._active_at[callback] > now - seconds + tick:
                break
            self._active_at[callback] = now
            self._active_at.move_to_end(callback)
            callback()
        self._timer = self._loop.call_later(tick, self._tick) if self._active_at else None

    def _due(self, since: float) -> list[Callable[[], None]]:
        """Return the streams that were idle since then, the longest idle first."""
        due = []
        for callback, active_at in self._active_at.items():
            if active_at > since:
                break
            due.append(callback)
        return due
