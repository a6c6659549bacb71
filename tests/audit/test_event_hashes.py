"""The digest of a call's events, hashed while they are written or read again at the end: both are equal."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from tests.audit.chained import checked, ending
from tools_app.audit.checkpoints import signer
from tools_app.audit.recorder import chain
from tools_app.audit.recorder.chain import ChainHeads, EventHashes, event_digests, heads
from tools_app.audit.recorder.entries import CallEventEntry, EventRow
from tools_app.audit.recorder.writers import write
from tools_app.core.ids import new_id
from tools_app.models import CallEvent


def events_of(call_id: UUID, count: int, first: int = 1) -> list[EventRow]:
    sequences = range(first, first + count)
    return [EventRow(call_id, each, datetime.now(UTC), "progress", f'{{"é":{each}}}') for each in sequences]


@pytest.fixture
def hashes() -> Iterator[EventHashes]:
    return EventHashes()


@pytest.mark.django_db
def test_the_digest_is_that_of_the_stored_events(hashes: EventHashes) -> None:
    one, two = new_id(), new_id()
    rows = [*events_of(one, 3), *events_of(two, 1), *events_of(one, 2, first=4)]
    CallEvent.objects.bulk_create([CallEvent(**row._asdict()) for row in rows])
    hashes.note(rows[:4])
    hashes.note(rows[4:])
    assert hashes.take({one: 5, two: 1}) == event_digests({one: 5, two: 1})


def test_a_call_of_which_an_event_is_missing_is_not_known(hashes: EventHashes) -> None:
    call = new_id()
    first, _, third = events_of(call, 3)
    hashes.note([first, third])
    assert hashes.take({call: 3}) == {}


@pytest.mark.parametrize("counted", [2, 4])
def test_a_call_that_counts_other_events_is_not_known(hashes: EventHashes, counted: int) -> None:
    call = new_id()
    hashes.note(events_of(call, 3))
    assert (hashes.has(call, 3), hashes.has(call, counted), hashes.has(new_id(), 0)) == (True, False, True)
    assert hashes.take({call: counted}) == {}


def test_a_call_that_another_process_began_is_not_known(hashes: EventHashes) -> None:
    call = new_id()
    hashes.note(events_of(call, 2, first=7))
    assert hashes.take({call: 8}) == {}


def test_nothing_is_known_after_a_transaction_that_failed(hashes: EventHashes) -> None:
    call = new_id()
    hashes.note(events_of(call, 1))
    hashes.clear()
    hashes.note(events_of(call, 1, first=2))
    assert hashes.take({call: 2}) == {}


def test_the_oldest_are_forgotten(hashes: EventHashes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "MAX_CALLS", 2)
    calls = [new_id() for _ in range(3)]
    for call in calls:
        hashes.note(events_of(call, 1))
    assert set(hashes.take(dict.fromkeys(calls, 1))) == set(calls[1:])


def test_no_event_of_a_batch_that_failed_is_remembered() -> None:
    chain_heads, call = ChainHeads(), new_id()

    def fail() -> None:
        with chain_heads.transaction():
            chain_heads.events.note(events_of(call, 2))
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail()
    assert not chain_heads.events.has(call, 2)
    with chain_heads.transaction():
        chain_heads.events.note(events_of(call, 2))
    assert chain_heads.events.has(call, 2)


@pytest.mark.usefixtures("new_chains")
def test_a_call_that_another_process_began_is_hashed_with_its_stored_events_beside_those_of_this_one() -> None:
    theirs, ours = ending(events=3), ending(events=2)
    write([*map(CallEventEntry, events_of(theirs.call_id, 3))])
    heads().events.clear()
    write([*map(CallEventEntry, events_of(ours.call_id, 2)), theirs, ours])
    signer.sign()
    report = checked()
    assert (report.findings, report.records) == ([], 2)
