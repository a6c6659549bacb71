"""Events of calls in workers come with notifications. Missing ones are read, in one query for all calls."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from tests.wire.client import MODERN, RawClient, call_params
from tools_app.calls import events
from tools_app.calls.background import delivery, update_reader
from tools_app.calls.background.update_reader import Position
from tools_app.calls.events import CallUpdate
from tools_app.core.ids import new_id
from tools_app.core.notifications.listener import Subscription
from tools_app.models import Outcome
from tools_app.server.embedded import EmbeddedHub
from tools_app.toolkit import ToolContext, tool

STEPS = 20
TOKEN = {"progressToken": "t"}
CALL = UUID("01a20590-7a80-7357-be44-68aac8941bbd")

Reads = list[list[Position]]


@pytest.fixture
def client(hub: EmbeddedHub, key: str) -> Iterator[RawClient]:
    """A client of the running hub, in place of Django's."""
    client = RawClient(hub.url, key)
    with client.http:
        yield client


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """The calls of each query to the database."""
    queries: Reads = []
    read_updates = update_reader.read_updates

    def record_and_read(wanted: Sequence[Position]) -> list[CallUpdate | Exception]:
        queries.append(list(wanted))
        return read_updates(wanted)

    monkeypatch.setattr(update_reader, "read_updates", record_and_read)
    return queries


@pytest.fixture
def reporting(registries: None, offer: Callable[..., object]) -> str:
    """A background tool that reports its steps."""

    @tool(background=True)
    def reporting(context: ToolContext, size: int = 1) -> str:
        for step in range(1, STEPS + 1):
            context.progress(step, STEPS, f"step {step}")
        return "x" * size

    offer("reporting")
    return "reporting"


def follow_call(client: RawClient, name: str, **arguments: Any) -> tuple[list[int], str]:
    """Call a tool, and return the reported steps and the text of the result."""
    with client.peer(MODERN).stream("tools/call", call_params(name, arguments, meta=TOKEN)) as stream:
        messages = [event.message for event in stream if event.message]
    *progress, answer = messages
    return [one["params"]["progress"] for one in progress], answer["result"]["content"][0]["text"]


def test_a_call_is_followed_without_reading_the_database(
    client: RawClient, reporting: str, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The slow poll does not fall into the call: all calls poll together when this divides the time of their loop.
    monkeypatch.setattr(delivery, "POLL_SECONDS", 1e9)
    assert follow_call(client, reporting) == (list(range(1, STEPS + 1)), "x")
    assert reads == []


@pytest.mark.parametrize("lost", ["every third", "all"])
def test_what_lost_notifications_did_not_bring_is_read(
    client: RawClient, reporting: str, reads: Reads, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    notify, count = Subscription.notify, iter(range(10_000))

    def unreliable(self: Subscription, detail: str = "", payloads: Sequence[bytes] = ()) -> None:
        kept = [one for one in payloads if lost == "every third" and next(count) % 3]
        notify(self, detail, kept)

    monkeypatch.setattr(Subscription, "notify", unreliable)
    assert follow_call(client, reporting) == (list(range(1, STEPS + 1)), "x")
    assert reads


def test_an_answer_too_large_for_a_notification_is_read(client: RawClient, reporting: str, reads: Reads) -> None:
    size = events.MAX_NOTICE_BYTES
    assert follow_call(client, reporting, size=size) == (list(range(1, STEPS + 1)), "x" * size)
    assert reads


def test_a_notice_that_the_hub_did_not_encrypt_is_not_believed(client: RawClient, reporting: str, reads: Reads) -> None:
    assert events.update_from(CALL, 0, [b"forged"]) is None
    other = events.end_notice(new_id(), 0, Outcome.OK, b"{}")
    assert events.update_from(CALL, 0, [other]) is None


@pytest.fixture
def event_notices() -> list[bytes]:
    return [events.event_notice(CALL, number, "log", f'{{"n":{number}}}') for number in (1, 2, 3)]


def test_notices_are_taken_in_their_order_and_once(event_notices: list[bytes]) -> None:
    update = events.update_from(CALL, 1, event_notices)
    assert update is not None
    assert [event.sequence for event in update.events] == [2, 3]
    assert update.outcome is None


def test_an_end_is_believed_only_after_all_its_events(event_notices: list[bytes]) -> None:
    end = events.end_notice(CALL, 3, Outcome.OK, b"{}")
    assert events.update_from(CALL, 0, [*event_notices[:2], end]) is None
    assert events.update_from(CALL, 0, [event_notices[0], event_notices[2], end]) is None
    update = events.update_from(CALL, 0, [*event_notices, end])
    assert update is not None
    assert (len(update.events), update.outcome, update.answer) == (3, "ok", b"{}")


def test_all_that_wait_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    async def read(_query: object, wanted: Sequence[Position]) -> list[CallUpdate]:
        reads.append(len(wanted))
        await asyncio.sleep(0)
        return [CallUpdate([], None, True, None) for _ in wanted]

    async def follow() -> list[CallUpdate]:
        return await asyncio.gather(*(update_reader.read(new_id(), 0) for _ in range(100)))

    monkeypatch.setattr(update_reader, "run_in_db_thread", read)
    assert len(asyncio.run(follow())) == 100
    assert reads == [100]


def test_an_error_of_the_database_reaches_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_query: object, _wanted: Sequence[Position]) -> list[CallUpdate]:
        raise ConnectionError("away")

    async def follow() -> list[Any]:
        return await asyncio.gather(*(update_reader.read(new_id(), 0) for _ in range(3)), return_exceptions=True)

    monkeypatch.setattr(update_reader, "run_in_db_thread", broken)
    assert [str(problem) for problem in asyncio.run(follow())] == ["away"] * 3
