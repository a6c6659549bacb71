"""The sessions with one upstream of the handshake era, each for the calls of clients with the same capabilities.

A question of an upstream need not name the call that it belongs to. So what an upstream may still ask about a call that
ended without its response must reach no other client: the session of that call is closed, and not lent again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final
from uuid import UUID

from tools_app.tool_api.results import ToolError
from tools_app.upstreams.client import Client
from tools_app.upstreams.errors import ErrorResponse, Refused, UpstreamFailed
from tools_app.upstreams.questions import Profile

# Sessions with one upstream, besides the one that lists. On stdio, each is a process.
MAX_SESSIONS, MAX_DUPLEX_SESSIONS = 16, 4
IDLE_SECONDS: Final = 300.0
CLOSE_SECONDS: Final = 10.0
# How long a call waits for a session.
WAIT_SECONDS: Final = 30.0


@dataclass(eq=False)
class Session:
    """A session, with the calls that use it. `parked` are those that wait for their clients, by the keys of these."""

    profile: Profile
    client: Client
    users: int = 0
    parked: Counter[UUID | None] = field(default_factory=Counter)
    is_spent: bool = False
    used_at: float = field(default_factory=monotonic)


class Lease:
    """A client that is lent for one call. `sessions` is None where a session is not needed."""

    def __init__(self, client: Client, session: Session | None = None, pool: "Sessions | None" = None) -> None:
        self.client = client
        self._session = session
        self._pool = pool
        self._parked_for: tuple[UUID | None] | None = None

    def park(self, key_id: UUID | None) -> bool:
        """Note that this call waits for the client of a key, until it ends. False if too many sessions wait already."""
        if self._parked_for is not None or self._session is None or self._pool is None:
            return True
        if not self._pool.may_wait(self._session, key_id):
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


class Sessions:
    """The sessions of one connection. `connect` opens one. Not safe for use from several event loops."""

    def __init__(self, name: str, connect: Callable[[Profile], Awaitable[Client]]) -> None:
        self._name = name
        self._connect = connect
        self._most = MAX_SESSIONS
        self._sessions: list[Session] = []
        self._opening = asyncio.Lock()
        self._freed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lend(self, profile: Profile, *, is_duplex: bool) -> AsyncIterator[Lease]:
        """Lend a session for a call. Raises ToolError if none is free in time, UpstreamFailed and ErrorResponse.

        Where all messages share one stream, a session has one call at a time, if that can be asked anything.
        """
        session = await self._session(profile, is_duplex=is_duplex)
        lease = Lease(session.client, session, self)
        has_ended = False
        try:
            yield lease
            has_ended = True
        except (ErrorResponse, Refused):
            has_ended = True
            raise
        except UpstreamFailed as problem:
            has_ended = not problem.sent
            raise
        finally:
            lease.resume()
            session.users -= 1
            session.used_at = monotonic()
            if profile and not has_ended:
                session.is_spent = True
                session.client.refuse_unrelated()
            if session.is_spent and not session.users:
                self._close_later(session)
            self._freed.set()

    def may_wait(self, session: Session, key_id: UUID | None) -> bool:
        """Whether a call of a session may be parked: one session stays free, and one key has at most half of them."""
        waiting = [one for one in self._sessions if one.parked and one is not session]
        of_key = [one for one in waiting if one.parked[key_id]]
        return len(waiting) < self._most - 1 and len(of_key) < self._most // 2

    async def close_idle(self) -> None:
        """Close sessions that were not used for a while."""
        now = monotonic()
        idle = [one for one in self._unused() if now - one.used_at > IDLE_SECONDS]
        self._sessions = [one for one in self._sessions if one not in idle]
        await asyncio.gather(*(closed(one.client) for one in idle))

    async def close(self) -> None:
        """Close all sessions."""
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(closed(one.client) for one in sessions), *self._closing)

    def _unused(self) -> list[Session]:
        return [one for one in self._sessions if not one.users and not one.is_spent]

    async def _session(self, profile: Profile, *, is_duplex: bool) -> Session:
        """Return a session for one more call, opened if there is none."""
        self._most = most = MAX_DUPLEX_SESSIONS if is_duplex else MAX_SESSIONS
        until = monotonic() + WAIT_SECONDS
        while True:
            async with self._opening:
                usable = [one for one in self._sessions if one.profile == profile and not one.is_spent]
                free = [one for one in usable if not one.client.is_closed]
                if is_duplex and profile:
                    free = [one for one in free if not one.users]
                gone = [one for one in self._unused() if one.client.is_closed]
                if not free and not gone and len(self._sessions) >= most:
                    gone = sorted(self._unused(), key=lambda one: one.used_at)[:1]
                self._sessions = [one for one in self._sessions if one not in gone]
                await asyncio.gather(*(closed(one.client) for one in gone))
                if not free and len(self._sessions) < most:
                    free = [Session(profile, await self._connect(profile))]
                    self._sessions += free
                if free:
                    free[0].users += 1
                    return free[0]
                self._freed.clear()
            try:
                async with asyncio.timeout(until - monotonic()):
                    await self._freed.wait()
            except TimeoutError:
                message = f"The upstream '{self._name}' is busy: all {most} sessions with it are in use."
                raise ToolError(f"{message} The call was not sent. Try again later.") from None

    def _close_later(self, session: Session) -> None:
        """Close a session that is not lent again. It counts until it is closed: on stdio, it is a process."""

        async def close() -> None:
            await closed(session.client)
            self._sessions = [one for one in self._sessions if one is not session]
            self._freed.set()

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def closed(client: Client) -> None:
    """Close a client, and ignore what it raises, in CLOSE_SECONDS."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), CLOSE_SECONDS)
