"""Recording on PostgreSQL takes few round trips, also behind a transaction pooler."""

import json
from typing import Any

import pytest

from tests.services.stack import Stack

PREPARE = """
import json
from tempfile import TemporaryFile
from uuid import UUID
from django.db import connection
from tests.audit.chained import checked, ending, write
from tests.audit.test_writers import beginning
from tools_app.audit.checkpoints import signer
from tools_app.audit.recorder import writers
from tools_app.audit.recorder.chain import heads
from tools_app.audit.recorder.entries import CallEventEntry, EventRow
from tools_app.models import Call, RunningCall
def round_trips(act):
    with TemporaryFile() as file:
        connection.connection.pgconn.trace(file.fileno())
        act()
        connection.connection.pgconn.untrace()
        file.seek(0)
        return sum(b"ReadyForQuery" in line for line in file)
def verified():
    signer.sign_last()
    return [str(finding) for finding in checked().findings]
write(ending())
"""
# For the next test, which may verify the same database.
SIGN = """
connection.close()
signer.sign_last()
"""


def run(stack: Stack, code: str) -> Any:
    """Run code after PREPARE in a process of the hub, and return the JSON that it prints."""
    return json.loads(stack.shell(PREPARE + code + SIGN))


def test_the_record_of_a_call_is_one_round_trip(stack: Stack) -> None:
    code = """
print(json.dumps([round_trips(lambda: write(ending())), round_trips(lambda: write(*(ending() for _ in range(50))))]))
"""
    assert run(stack, code) == [1, 1]


def test_the_events_of_a_call_are_in_the_round_trip_of_its_record_unless_it_reads_earlier_ones(stack: Stack) -> None:
    code = """
written, known, unknown = ending(events=3), ending(events=3), ending(events=3)
write(written)
known_trips = round_trips(lambda: write(known))
first, *rest = [CallEventEntry(EventRow(unknown.call_id, n, unknown.row.finished_at, "log", "{}")) for n in (1, 2, 3)]
writers.write([first])
heads().events.clear()
unknown_trips = round_trips(lambda: writers.write([*rest, unknown]))
print(json.dumps([known_trips, unknown_trips > 1, verified()]))
"""
    assert run(stack, code) == [1, True, []]


def test_a_call_that_settles_its_intent_takes_three(stack: Stack) -> None:
    code = """
def begun():
    end = ending(settles=True)
    writers.write([beginning(end.facts)])
    return end
write(begun())
end = begun()
print(json.dumps([round_trips(lambda: write(end)), RunningCall.objects.count(), verified()]))
"""
    assert run(stack, code) == [3, 0, []]


def test_nothing_is_lost_where_a_pooler_does_not_keep_prepared_statements(stack: Stack) -> None:
    code = """
before = Call.objects.count()
for lose in ("DEALLOCATE ALL", "SELECT 1", "DEALLOCATE ALL"):
    with connection.cursor() as cursor:
        cursor.execute(lose)
    write(ending(), ending(events=1))
print(json.dumps([Call.objects.count() - before, verified(), round_trips(lambda: write(ending()))]))
"""
    assert run(stack, code) == [6, [], 1]


def test_nothing_is_lost_where_another_client_of_the_pooler_prepared_the_same_statement(stack: Stack) -> None:
    code = """
before = Call.objects.count()
writers._prepared.clear()
write(ending())
print(json.dumps([Call.objects.count() - before, verified()]))
"""
    assert run(stack, code) == [1, []]


def test_a_settled_call_is_written_once_where_its_statement_is_lost(stack: Stack) -> None:
    code = """
end = ending(settles=True)
writers.write([beginning(end.facts)])
with connection.cursor() as cursor:
    cursor.execute("DEALLOCATE ALL")
late = [write(end), write(end)]
print(json.dumps([[len(ids) for ids in late], Call.objects.filter(pk=end.call_id).count(), verified()]))
"""
    assert run(stack, code) == [[0, 1], 1, []]


def test_a_batch_that_the_server_does_not_take_to_its_end_raises_that_it_is_unavailable(stack: Stack) -> None:
    code = """
pid = connection.connection.info.backend_pid
other = connection.copy()
with other.cursor() as cursor:
    cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
other.close()
try:
    write(ending())
except Exception as problem:
    print(json.dumps([kind.__name__ for kind in type(problem).__mro__]))
"""
    assert "OperationalError" in run(stack, code)


@pytest.mark.parametrize("failure", ["RAISE EXCEPTION 'no'", "PERFORM pg_terminate_backend(pg_backend_pid())"])
@pytest.mark.parametrize("settles", [False, True])
def test_a_batch_whose_commit_fails_is_not_reported_as_written(stack: Stack, failure: str, settles: bool) -> None:
    code = f"""
end = ending(settles={settles})
if {settles}:
    writers.write([beginning(end.facts)])
with connection.cursor() as cursor:
    cursor.execute('''
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {failure}; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER fails AFTER INSERT OR UPDATE ON tools_app_callfigures
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()''')
try:
    late = write(end)
except Exception:
    late = "failed"
connection.close()
with connection.cursor() as cursor:
    cursor.execute("DROP FUNCTION fail CASCADE")
before = Call.objects.filter(pk=end.call_id).count()
again = [str(id) for id in write(end)]
print(json.dumps([late, before, again, Call.objects.filter(pk=end.call_id).count(), verified()]))
"""
    assert run(stack, code) == ["failed", 0, [], 1, []]
