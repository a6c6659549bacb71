"""The streams that are open in this process: ended when the hub stops, or when their key or session is no longer good.

One guard looks for all of them, so that a thousand idle streams cost one query, and a revoked key loses its streams
within a second.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tools_app.auth import passes, principal, sessions
from tools_app.auth.keys import digest_of
from tools_app.auth.principal import Credential
from tools_app.auth.sessions import SessionFacts

log = logging.getLogger(__name__)

GUARD_SECONDS = 0.4


class OpenStream:
    """One open stream, of a key or of nobody's: `still_allowed` says from memory whether it may go on."""

    def __init__(
        self, credential: Credential | None, session: SessionFacts | None, still_allowed: Callable[[], Awaitable[bool]]
    ) -> None:
        # A pass is looked at one by one: few people have one, and none for long.
        by_key = credential is not None and not passes.is_pass(credential.key)
        self.key_digest = digest_of(credential.key) if credential and by_key else None
        self.session_digest = session.digest if session else None
        self.still_allowed = still_allowed
        self.ended = asyncio.Event()


class OpenStreams:
    """All open streams of one event loop, and their guard."""

    def __init__(self) -> None:
        self._streams: set[OpenStream] = set()
        self._guard: asyncio.Task[None] | None = None

    def add(self, stream: OpenStream) -> None:
        """Note a stream that begins."""
        self._streams.add(stream)
        if self._guard is None or self._guard.done():
            self._guard = asyncio.get_running_loop().create_task(self._watch())

    def remove(self, stream: OpenStream) -> None:
        """Note that a stream is closed."""
        self._streams.discard(stream)

    def end_all(self) -> None:
        """Let every stream end properly."""
        for stream in self._streams:
            stream.ended.set()

    def __len__(self) -> int:
        return len(self._streams)

    async def _watch(self) -> None:
        while self._streams:
            await asyncio.sleep(GUARD_SECONDS)
            try:
                await self._look()
            except Exception as problem:  # noqa: BLE001 - the store may be away; streams go on until it is back
                log.warning("Open streams could not be checked: %s", problem)

    async def _look(self) -> None:
        streams = list(self._streams)
        await principal.ring.renew({stream.key_digest for stream in streams if stream.key_digest})
        await sessions.ring.renew({stream.session_digest for stream in streams if stream.session_digest})
        for stream in streams:
            if not await stream.still_allowed():
                stream.ended.set()
