"""The cost of rejecting requests: reads, queries and writes for an invalid key."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import pytest

from tools_app.audit.recorder import denials
from tools_app.audit.recorder.denials import Denial
from tools_app.core import refresh_ahead_cache
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.identity import principal
from tools_app.tenants.keys import new_key
from tools_app.transport import state
from tools_app.transport.routing import mcp_application
from tools_app.transport.stranger_queue import STRANGERS

# No test here queries the database, but the pool's threads close connections of earlier tests.
pytestmark = pytest.mark.django_db

WAIT_SECONDS = 30.0
HEADERS = {"host": "127.0.0.1", "content-type": "application/json", "accept": "application/json"}


class Recorder:
    """A recorder that stores entries in memory."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def submit(self, entry: Any) -> None:
        self.entries.append(entry)


class Hub:
    """The ASGI application, with counts of queries for keys and of body reads before the response."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queries: list[Sequence[str]] = []
        self.reads = 0
        self.recorder = Recorder()
        monkeypatch.setattr(principal.cache, "_load", self._load)
        monkeypatch.setattr("tools_app.audit.recorder.recorder.current", lambda: self.recorder)
        denials._window.stop()
        monkeypatch.setattr("tools_app.transport.state.process.start", lambda _: None)
        monkeypatch.setattr("tools_app.core.notifications.listener.TopicListener.start", lambda _: None)

    def _load(self, digests: Sequence[str]) -> Mapping[str, Any]:
        self.queries.append(digests)
        return {}

    async def post(self, key: str, **headers: str) -> int:
        """The status of the response to a request with this key."""
        messages: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            self.reads += not messages
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        all_headers = {**HEADERS, "authorization": f"Bearer {key}", "content-length": "2", **headers}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "scheme": "http",
            "client": ("192.0.2.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
        }
        await mcp_application(_no_pages)(scope, receive, send)
        status: int = messages[0]["status"]
        return status


async def _no_pages(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("this is no page")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    principal.cache.forget_all()
    yield Hub(monkeypatch)
    principal.cache.forget_all()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        try:
            await asyncio.wait_for(scenario(), WAIT_SECONDS)
        finally:
            state.discard()

    asyncio.run(bounded())


def test_a_wrong_key_that_comes_again_is_refused_without_a_query_and_unread(hub: Hub) -> None:
    async def scenario() -> None:
        key = new_key()
        assert {await hub.post(key) for _ in range(50)} == {401}

    run(scenario)
    assert len(hub.queries) == 1
    assert hub.reads == 0


def test_what_is_too_short_for_a_key_is_not_looked_for(hub: Hub) -> None:
    async def scenario() -> None:
        assert {await hub.post("x" * length) for length in (1, 20, 31)} == {401}

    run(scenario)
    assert hub.queries == []
    assert hub.reads == 0


def test_a_flood_of_different_keys_shares_queries(hub: Hub) -> None:
    async def scenario() -> None:
        assert set(await asyncio.gather(*(hub.post(new_key()) for _ in range(400)))) == {401}

    run(scenario)
    assert sum(map(len, hub.queries)) == 400
    # How many keys share a query depends on the machine's speed.
    assert len(hub.queries) <= 400 / 8


def test_beyond_the_strangers_that_may_wait_the_answer_is_429(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.transport.handler.STRANGERS", STRANGERS._replace(slots=1, max_waiting=3))

    async def scenario() -> None:
        answers = await asyncio.gather(*(hub.post(new_key()) for _ in range(10)))
        # The first one may run when the others come.
        assert Counter(answers) in ({401: 3, 429: 7}, {401: 4, 429: 6})

    run(scenario)


def test_a_refusal_for_another_cause_waits_for_its_turn_too(hub: Hub) -> None:
    async def scenario() -> None:
        assert await hub.post(new_key(), host="elsewhere.example") == 421
        gate = state.current().scheduler
        assert STRANGERS in gate._owners

    run(scenario)
    assert hub.queries == []


def test_keys_that_are_missing_do_not_push_out_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_ahead_cache, "MAX_ABSENT", 10)

    async def scenario() -> None:
        rows: RefreshAheadCache[str, str] = RefreshAheadCache(
            lambda keys: {key: "row" for key in keys if key == "good"}
        )
        assert await rows.get("good") == "row"
        for number in range(50):
            assert await rows.get(f"bad {number}") is None
        assert rows.has_row("good")
        assert len(rows._absent) == 10

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))


def test_a_key_that_is_made_after_it_was_refused_works_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(refresh_ahead_cache, "monotonic", lambda: clock[0])
    stored: dict[str, str] = {}

    async def scenario() -> None:
        rows: RefreshAheadCache[str, str] = RefreshAheadCache(
            lambda keys: {key: stored[key] for key in keys if key in stored}, gather_seconds=0.001
        )
        assert await rows.get("key") is None
        stored["key"] = "row"
        clock[0] += 1.0
        assert await rows.get("key") == "row"

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))


# --- Records of refusals --------------------------------------------------------------------------------------------


def test_a_flood_from_one_address_leaves_rows_for_what_others_try(hub: Hub) -> None:
    for _ in range(1000):
        denials.note(Denial(401, "A valid API key is needed.", "192.0.2.1"))
    denials.note(Denial(403, "This API key may not be used from this address.", "192.0.2.2"))
    assert len(hub.recorder.entries) == denials.MAX_OF_ONE + 1
    assert hub.recorder.entries[-1].facts.remote_address == "192.0.2.2"
    denials.flush(at_once=True)
    rest = hub.recorder.entries[-1]
    assert (rest.facts.remote_address, rest.row.repeated) == ("192.0.2.1", 1000 - denials.MAX_OF_ONE)


def test_a_flood_from_many_addresses_is_counted_within_bounds(hub: Hub) -> None:
    for number in range(5000):
        denials.note(Denial(401, f"cause {number % 900}", f"2001:db8::{number:x}"))
    denials.flush(at_once=True)
    assert len(hub.recorder.entries) <= denials.MAX_ROWS + 2 * denials.MAX_KINDS + 1
    assert sum(entry.row.repeated for entry in hub.recorder.entries) == 5000
