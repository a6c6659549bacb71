"""The sessions with one upstream of the handshake era, each for the calls of clients with the same capabilities.

A profile is a set of capabilities, as paths such as "elicitation.url": what an upstream may ask.

A question of an upstream need not name the call that it belongs to. So what an upstream may still ask about a call that
ended without its response must reach no other client: the session of that call is closed, and not lent again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final
from uuid import UUID

from tools_app.catalog.tool_api.elicitation import declares
from tools_app.catalog.tool_api.results import ToolError
from tools_app.upstreams.client import Client
from tools_app.upstreams.errors import ErrorResponse, Refused, UpstreamFailed

CAPABILITY_PATHS: Final = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context", "roots")
Profile = frozenset[str]
ALL_CAPABILITIES: Final[Profile] = frozenset(CAPABILITY_PATHS)
NO_CAPABILITIES: Final[Profile] = frozenset()

# Sessions with one upstream, besides the one that lists. On stdio, each is a process.
MAX_SESSIONS, MAX_DUPLEX_SESSIONS = 16, 4
IDLE_SECONDS: Final = 300.0
CLOSE_SECONDS: Final = 10.0
# How long a call waits for a session.
WAIT_SECONDS: Final = 30.0


def profile_of(capabilities: Mapping[str, Any]) -> Profile:
    """Return what a client with these capabilities can be asked."""
    return frozenset(path for path in CAPABILITY_PATHS if declares(capabilities, path))


def capabilities_of(profile: Profile) -> dict[str, Any]:
    """Return a profile as the capabilities of a client."""
    declared: dict[str, Any] = {}
    for path in CAPABILITY_PATHS:
        if path in profile:
            area, _, mode = path.partition(".")
            modes = declared.setdefault(area, {})
            if mode or area == "elicitation":
                modes[mode or "form"] = {}
    return declared


@dataclass(eq=False)
class Session:
    """A session, with the calls that use it. `parked` are those that wait for their clients, by the keys of these."""

    profile: Profile
    client: Client
    call_count: int = 0
    parked: Counter[UUID | None] = field(default_factory=Counter)
    is_discarded: bool = False
    used_at: float = field(default_factory=monotonic)


class Lease:
    """A client that is lent for one call. `session` is None where a session is not needed."""

    def __init__(self, client: Client, session: Session | None = None, pool: "SessionPool | None" = None) -> None:
        self.client = client
        self._session = session
        self._pool = pool
        self._parked_for: tuple[UUID | None] | None = None

    def park(self, key_id: UUID | None) -> bool:
        """Note that this call waits for the client of a key, until it ends. False if too many sessions wait already."""
        if self._parked_for is not None or self._session is None or self._pool is None:
            return True
        if not self._pool.may_park(self._session, key_id):
            return False
        self._parked_for = (key_id,)
        self._session.parked[key_id] += 1
        return True

    def resume(self) -> None:
        """Note that this call waits for no client any more."""
        if self._parked_for is not None and self._session is not None:
            self._session.parked.subtract(self._parked_for)
            self._session.parked += Counter()  # without those that are zero
        self._parked_for = None


class SessionPool:
    """The sessions of one connection. `connect` opens one. Not safe for use from several event loops."""

    def __init__(self, name: str, connect: Callable[[Profile], Awaitable[Client]]) -> None:
        self._name = name
        self._connect = connect
        self._max_sessions = MAX_SESSIONS
        self._sessions: list[Session] = []
        self._opening = asyncio.Lock()
        self._released = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lease(self, profile: Profile, *, is_duplex: bool) -> AsyncIterator[Lease]:
        """Lend a session for a call. Raises ToolError if none is free in time, UpstreamFailed and ErrorResponse.

        Where all messages share one stream, a session has one call at a time, if that can be asked anything.
        """
        session = await self._acquire_session(profile, is_duplex=is_duplex)
        lease = Lease(session.client, session, self)
        has_ended = False
        try:
            yield lease
            has_ended = True
        except (ErrorResponse, Refused):
            has_ended = True
            raise
        except UpstreamFailed as error:
            has_ended = not error.sent
            raise
        finally:
            lease.resume()
            session.call_count -= 1
            session.used_at = monotonic()
            if profile and not has_ended:
                session.is_discarded = True
                session.client.transport.refuses_questions = True
            if session.is_discarded and not session.call_count:
                closing = asyncio.get_running_loop().create_task(self._close_discarded(session))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            self._released.set()

    def may_park(self, session: Session, key_id: UUID | None) -> bool:
        """Whether a call of a session may be parked: one session stays free, and one key has at most half of them."""
        parked_sessions = [other for other in self._sessions if other.parked and other is not session]
        parked_by_key = [other for other in parked_sessions if other.parked[key_id]]
        return len(parked_sessions) < self._max_sessions - 1 and len(parked_by_key) < self._max_sessions // 2

    async def close_idle(self) -> None:
        """Close sessions that were not used for a while."""
        now = monotonic()
        idle = [session for session in self._unused() if now - session.used_at > IDLE_SECONDS]
        self._sessions = [session for session in self._sessions if session not in idle]
        await asyncio.gather(*(close_client(session.client) for session in idle))

    async def close(self) -> None:
        """Close all sessions."""
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(close_client(session.client) for session in sessions), *self._closing)

    def _unused(self) -> list[Session]:
        return [session for session in self._sessions if not session.call_count and not session.is_discarded]

    async def _acquire_session(self, profile: Profile, *, is_duplex: bool) -> Session:
        """Return a session for one more call, opened if there is none."""
        self._max_sessions = max_sessions = MAX_DUPLEX_SESSIONS if is_duplex else MAX_SESSIONS
        deadline = monotonic() + WAIT_SECONDS
        while True:
            async with self._opening:
                usable = [
                    session for session in self._sessions if session.profile == profile and not session.is_discarded
                ]
                free = [session for session in usable if not session.client.is_closed]
                if is_duplex and profile:
                    free = [session for session in free if not session.call_count]
                surplus = [session for session in self._unused() if session.client.is_closed]
                if not free and not surplus and len(self._sessions) >= max_sessions:
                    surplus = sorted(self._unused(), key=lambda session: session.used_at)[:1]
                self._sessions = [session for session in self._sessions if session not in surplus]
                await asyncio.gather(*(close_client(session.client) for session in surplus))
                if not free and len(self._sessions) < max_sessions:
                    free = [Session(profile, await self._connect(profile))]
                    self._sessions += free
                if free:
                    free[0].call_count += 1
                    return free[0]
                self._released.clear()
            try:
                async with asyncio.timeout(deadline - monotonic()):
                    await self._released.wait()
            except TimeoutError:
                message = f"The upstream '{self._name}' is busy: all {max_sessions} sessions with it are in use."
                raise ToolError(f"{message} The call was not sent. Try again later.") from None

    async def _close_discarded(self, session: Session) -> None:
        """Close a session that is not lent again. It counts until it is closed: on stdio, it is a process."""
        await close_client(session.client)
        self._sessions = [other for other in self._sessions if other is not session]
        self._released.set()


async def close_client(client: Client) -> None:
    """Close a client, and ignore what it raises, in CLOSE_SECONDS."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), CLOSE_SECONDS)
