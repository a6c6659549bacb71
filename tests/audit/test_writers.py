"""The writer of the database: rows match the models, and a call is settled once."""

from uuid import UUID

import msgspec
import pytest
from django.db.models import Model
from django.utils import timezone

from tools_app.audit.recorder.entries import (
    CallEventEntry,
    CallFinished,
    CallStarted,
    EventRow,
    Facts,
    FinishedRow,
    Payload,
    RunningRow,
)
from tools_app.audit.recorder.writers import (
    ANSWERS,
    CALLS,
    EVENTS,
    PAYLOADS,
    RUNNING,
    write,
)
from tools_app.core.ids import new_id
from tools_app.models import Call, CallEvent, CallPayload, RunningCall

ASKED = '{"city":{"message":"Where?"}}'
ODD = "\"\\ \\u0000 \\x00 {}, \t\x01\x7f \u2028 é 漢 \U0001f600 $1 %s '; --"


def facts() -> Facts:
    return Facts(
        new_id(), None, None, None, None, "echo", 1, "tools/call", "1", "2026-07-28", "c", "1", "", "", timezone.now()
    )


def beginning(known: Facts) -> CallStarted:
    return CallStarted(
        known,
        RunningRow(
            "running", False, new_id(), 5.0, False, '{"a":1}', b"\x00sealed", None, 60.0, ASKED, known.started_at
        ),
    )


def ending(known: Facts, *, settles: bool) -> CallFinished:
    ended = FinishedRow(timezone.now(), 12, 3, "ok", 200, None, False, "", False, 7, 9, 1, 1, new_id())
    return CallFinished(known, ended, Payload(known.id, '{"a":1}', '{"text":"é"}'), settles=settles)


@pytest.mark.parametrize(("model", "columns"), [RUNNING, CALLS, PAYLOADS, ANSWERS, EVENTS])
def test_rows_have_exactly_the_columns_of_their_model(model: type[Model], columns: tuple[str, ...]) -> None:
    concrete = {field.column for field in model._meta.concrete_fields}
    assert set(columns) == concrete


def test_the_orm_reads_back_what_is_written(transactional_db: None) -> None:
    running, done = facts(), facts()
    event = EventRow(done.id, 1, timezone.now(), "progress", '{"progress":1}')
    ended = ending(done, settles=False)

    assert write([beginning(running), CallEventEntry(event), ended]) == set()

    row = RunningCall.objects.get()
    assert Facts(*(getattr(row, name) for name in Facts._fields)) == running
    assert bytes(row.sealed_arguments) == b"\x00sealed"
    assert row.asked == {"city": {"message": "Where?"}}
    call = Call.objects.get()
    assert Facts(*(getattr(call, name) for name in Facts._fields)) == done
    assert FinishedRow(*(getattr(call, name) for name in FinishedRow._fields)) == ended.row
    assert CallPayload.objects.get().texts() == ('{"a":1}', '{"text":"é"}')
    assert CallEvent.objects.values_list(*EventRow._fields).get() == event


def test_texts_are_read_back_character_by_character(transactional_db: None) -> None:
    ended = ending(facts()._replace(client_name=ODD), settles=False)
    event = CallEventEntry(EventRow(ended.call_id, 1, timezone.now(), "log", ODD))

    write([event, msgspec.structs.replace(ended, payload=Payload(ended.call_id, ODD, ODD))])

    assert Call.objects.get().client_name == ODD
    assert CallPayload.objects.get().texts() == (ODD, ODD)
    assert CallEvent.objects.get().data == ODD


def test_a_batch_with_an_invalid_row_leaves_nothing(transactional_db: None) -> None:
    known, there = facts(), facts()
    write([beginning(known), ending(there, settles=False)])

    with pytest.raises(Exception, match=r"(?i)unique"):
        write([ending(known, settles=True), ending(there, settles=False)])
    assert list(RunningCall.objects.values_list("pk", flat=True)) == [known.id]
    assert list(Call.objects.values_list("pk", flat=True)) == [there.id]

    assert write([ending(known, settles=True)]) == set()
    assert not RunningCall.objects.exists()
    assert Call.objects.count() == CallPayload.objects.count() == 2


def test_a_call_is_settled_once(transactional_db: None) -> None:
    known = facts()
    write([beginning(known)])

    assert write([ending(known, settles=True)]) == set[UUID]()
    assert write([ending(known, settles=True)]) == {known.id}

    assert not RunningCall.objects.exists()
    assert Call.objects.count() == 1


def test_a_call_that_begins_and_ends_in_one_batch_leaves_only_its_record(transactional_db: None) -> None:
    known = facts()
    assert write([beginning(known), ending(known, settles=True)]) == set()
    assert Call.objects.count() == 1
    assert not RunningCall.objects.exists()
