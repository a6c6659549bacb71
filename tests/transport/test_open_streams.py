"""The guard of open streams: batched permission checks, and the streams that it ends."""

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from tools_app.calls import sessions
from tools_app.identity import principal
from tools_app.identity.principal import Credential, Principal
from tools_app.tenants import last_used
from tools_app.transport import streams
from tools_app.transport.streams import OpenStream, OpenStreams

pytestmark = pytest.mark.servers

WAIT_SECONDS = 30.0
CALLER = Principal(uuid4(), uuid4(), "acme", ())


class Store:
    """The caller and the sessions of all streams, with a count of reads."""

    def __init__(self) -> None:
        self.caller: Principal | None = CALLER
        self.ended: set[str] = set()
        self.questions = {"keys": 0, "sessions": 0, "callers": 0, "permits": 0}
        self.key_state = 0
        self.renewed: list[str] = []
        self.checked = asyncio.Semaphore(0)

    async def renew(self, keys: Collection[str]) -> None:
        self.renewed += keys

    async def key_states(self, digests: Collection[str]) -> Mapping[str, int]:
        self.questions["keys"] += 1
        return dict.fromkeys(digests, self.key_state) if self.caller else {}

    async def open_digests(self, ids: Mapping[str, UUID]) -> Collection[str]:
        self.questions["sessions"] += 1
        self.checked.release()
        return set(ids) - self.ended

    async def resolve(self) -> Principal | None:
        self.questions["callers"] += 1
        # Like the cache: an equal, but new object at each refresh.
        return msgspec.structs.replace(self.caller) if self.caller else None

    async def checks(self, count: int) -> None:
        """Wait until the next `count` checks have begun, and those before them have finished."""
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(count):
                await self.checked.acquire()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(principal.cache, "renew", store.renew)
    monkeypatch.setattr(principal, "key_states", store.key_states)
    monkeypatch.setattr(sessions, "open_digests", store.open_digests)
    monkeypatch.setattr(streams, "GUARD_SECONDS", 0.001)
    return store


def stream_of(
    store: Store, session: str | None = None, identity: Any = "key", credential: Credential | None = None
) -> OpenStream:
    def permits(caller: Principal) -> bool:
        store.questions["permits"] += 1
        return caller.methods is None

    facts: Any = SimpleNamespace(digest=session, id=uuid4()) if session else None
    return OpenStream(credential, facts, store.resolve, permits, identity)


async def wait_closed(*of: OpenStream) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        for stream in of:
            end = asyncio.Event()
            stream.on_end(end.set)
            if not stream.is_ended:
                await end.wait()


def test_streams_of_one_key_are_checked_as_one(store: Store) -> None:
    async def scenario() -> bool:
        guard, opened = OpenStreams(), [stream_of(store, uuid4().hex) for _ in range(1000)]
        for stream in opened:
            guard.add(stream)
        await store.checks(3)
        for stream in opened:
            guard.remove(stream)
        return any(stream.is_ended for stream in opened)

    assert asyncio.run(scenario()) is False
    counts = store.questions
    assert counts["keys"] == counts["sessions"] >= counts["callers"] >= 2
    # Once each, because the caller is unchanged.
    assert counts["permits"] == 1000


def test_a_key_that_is_invalid_ends_its_streams_and_no_others(store: Store) -> None:
    async def scenario() -> bool:
        other = Store()
        guard, own, foreign = OpenStreams(), [stream_of(store) for _ in range(3)], stream_of(other, identity="other")
        for stream in (*own, foreign):
            guard.add(stream)
        await store.checks(2)
        store.caller = None
        await wait_closed(*own)
        return foreign.is_ended

    assert asyncio.run(scenario()) is False


def test_a_caller_that_changed_is_checked_by_each_stream(store: Store) -> None:
    async def scenario() -> None:
        guard, opened = OpenStreams(), [stream_of(store) for _ in range(3)]
        for stream in opened:
            guard.add(stream)
        await store.checks(2)
        store.caller = msgspec.structs.replace(CALLER, redacted_keys=("ssn",))
        before = store.questions["permits"]
        await store.checks(3)
        assert store.questions["permits"] == before + 3
        assert not any(stream.is_ended for stream in opened)
        store.caller = msgspec.structs.replace(CALLER, methods=("ping",))
        await wait_closed(*opened)

    asyncio.run(scenario())


def test_a_stream_that_asks_to_be_checked_again_is(store: Store) -> None:
    async def scenario() -> None:
        guard, stream = OpenStreams(), stream_of(store)
        guard.add(stream)
        await store.checks(2)
        before = store.questions["permits"]
        stream.check_again()
        await store.checks(2)
        assert store.questions["permits"] == before + 1

    asyncio.run(scenario())


def test_a_session_that_ended_ends_its_streams_and_no_others(store: Store) -> None:
    async def scenario() -> bool:
        guard, over = OpenStreams(), uuid4().hex
        gone, there = [stream_of(store, over) for _ in range(2)], [stream_of(store, uuid4().hex), stream_of(store)]
        for stream in (*gone, *there):
            guard.add(stream)
        await store.checks(2)
        store.ended.add(over)
        await wait_closed(*gone)
        return any(stream.is_ended for stream in there)

    assert asyncio.run(scenario()) is False


def test_a_session_that_begins_during_a_check_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    still_open = store.open_digests

    async def scenario() -> bool:
        guard, begins = OpenStreams(), stream_of(store)

        async def slowly(ids: Mapping[str, UUID]) -> Collection[str]:
            facts: Any = SimpleNamespace(digest=uuid4().hex, id=uuid4())
            begins.session = begins.session or facts
            return await still_open(ids)

        monkeypatch.setattr(sessions, "open_digests", slowly)
        guard.add(begins)
        await store.checks(3)
        return begins.is_ended

    assert asyncio.run(scenario()) is False


def test_a_key_that_stays_as_it_is_is_not_loaded_again(store: Store) -> None:
    async def scenario() -> None:
        key = Credential("k" * 40)
        guard, opened = OpenStreams(), [stream_of(store, credential=key) for _ in range(3)]
        for stream in opened:
            guard.add(stream)
        await store.checks(5)
        assert (store.renewed, store.questions["callers"]) == ([key.digest], 1)
        store.key_state += 1
        store.caller = msgspec.structs.replace(CALLER, redacted_keys=("ssn",))
        await store.checks(5)
        assert (store.renewed, store.questions["callers"]) == ([key.digest] * 2, 2)
        store.caller = None
        await wait_closed(*opened)

    asyncio.run(scenario())


def test_the_key_of_an_open_stream_is_in_use(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Collection[UUID]] = []
    monkeypatch.setattr(last_used, "keys_used", used.append)

    async def scenario() -> None:
        guard = OpenStreams()
        guard.add(stream_of(store, credential=Credential("k" * 40)))
        await store.checks(4)

    asyncio.run(scenario())
    assert CALLER.key_id is not None
    assert used[-1] == {CALLER.key_id}
