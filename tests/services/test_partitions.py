"""Monthly partitions of the audit log on PostgreSQL, and dropping them while calls run."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import psycopg
import pytest

from tests.services.caller import Caller
from tests.services.conftest import Hub, started
from tests.services.stack import Stack, eventually
from tools_app.audit.partitions import TABLES, Month

NAMES = [table.name for table in TABLES]
# Django's names, which plans and migrations use.
INDEXES = {"call_by_tenant", "call_by_tool", "call_by_outcome", *(f"{name}_pkey" for name in NAMES)}
MAX_CALL_SECONDS = 5.0

PREPARE = """
from datetime import timedelta
from django.db import connection
from django.utils import timezone
from tests.audit.aged import write_at
from tools_app.audit import partitions
from tools_app.audit.partitions import Month
from tools_app.models import Call, CallEvent, CallPayload, RunningCall, Tenant
def month(back):
    return Month.of(timezone.now()).after(-back)
def make(back):
    with partitions.partition_lock(), connection.cursor() as cursor:
        assert partitions._create(cursor, month(back))
def days_of(back, *numbers):
    return [month(back).begin + timedelta(days=number - 1) for number in numbers]
def tenant(slug, keep_days=None):
    return Tenant.objects.create(slug=slug, name=slug, keep_days=keep_days)
"""
SIGN = """
from tools_app.audit.checkpoints import signer as evidence
evidence.checkpoint_signer().sign(last=True)
"""


def now() -> datetime:
    return datetime.now(UTC)


def month(back: int) -> Month:
    return Month.of(now()).after(-back)


def name(back: int) -> str:
    """The suffix of the partition of this many months ago."""
    year, number = month(back)
    return f"_{year}_{number:02d}"


def run(stack: Stack, code: str) -> str:
    """Run code after PREPARE in a process of the hub."""
    return stack.shell(PREPARE + code + SIGN)


def partitions(stack: Stack) -> set[str]:
    """The suffixes of the partitions, which are the same for each table."""
    query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
    found = [{row[0].removeprefix(table) for row in stack.rows(query, table)} for table in NAMES]
    assert found[0] == found[1] == found[2]
    return found[0]


def months_of(stack: Stack, slug: str) -> list[str]:
    """The partitions of a tenant's calls, which their payloads and events share."""
    query = """
        SELECT e.tableoid::regclass::text, c.tableoid::regclass::text, p.tableoid::regclass::text
        FROM tools_app_tenant t JOIN tools_app_call c ON c.tenant_id = t.id
        JOIN tools_app_callpayload p ON p.call_id = c.id
        JOIN tools_app_callevent e ON e.call_id = c.id AND e.sequence = 2
        WHERE t.slug = %s ORDER BY c.id"""
    found = []
    for row in stack.rows(query, slug):
        parts = {part.removeprefix(table) for part, table in zip(row, NAMES, strict=True)}
        assert len(parts) == 1, row
        found += parts
    return found


def verified(stack: Stack) -> None:
    assert "No problems found." in stack.manage("verify_audit")


@pytest.fixture(scope="module")
def running(stack: Stack) -> Hub:
    """A hub of its own, whose partitions these tests drop."""
    return started(stack)


@pytest.fixture
def calling(hub: Hub, caller: Caller) -> Iterator[list[tuple[int, float]]]:
    """Call both web processes alternately while the test runs; collect the status and seconds of each call."""
    answers: list[tuple[int, float]] = []
    over = threading.Event()

    def call(url: str) -> None:
        while not over.is_set():
            began = monotonic()
            status = caller.call(url, "echo", {"message": "x" * 3000}).status_code
            answers.append((status, monotonic() - began))

    with ThreadPoolExecutor(len(hub.urls)) as pool:
        going = [pool.submit(call, url) for url in hub.urls]
        yield answers
        over.set()
    for one in going:
        one.result()
    assert {status for status, _ in answers} == {200}
    assert max(seconds for _, seconds in answers) < MAX_CALL_SECONDS


def test_a_fresh_hub_has_partitions_of_this_month_and_of_two_to_come(stack: Stack) -> None:
    assert stack.rows("SELECT DISTINCT relkind FROM pg_class WHERE relname = ANY(%s)", NAMES) == [("p",)]
    assert partitions(stack) >= {"_default", name(0), name(-1), name(-2)}
    found = {row[0] for row in stack.rows("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")}
    found |= {row[0] for row in stack.rows("SELECT relname FROM pg_class WHERE relkind = 'I'")}
    assert found >= INDEXES


def test_changes_are_recorded_while_partitions_are_pruned(stack: Stack) -> None:
    run(
        stack,
        """
import threading
from django.db import transaction
from tools_app.audit.changes import changes
held, free = threading.Event(), threading.Event()
def prune():
    with partitions.partition_lock():
        held.set()
        free.wait(20)
    connection.close()
pruning = threading.Thread(target=prune)
pruning.start()
assert held.wait(20)
try:
    with changes.recording_as(changes.at_command_line()), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '5s'")
        tenant("beside")
finally:
    free.set()
    pruning.join(20)
""",
    )


def test_a_call_lands_in_its_month_with_all_that_belongs_to_it(stack: Stack) -> None:
    run(
        stack,
        """
make(14)
edge = month(13).begin
write_at(tenant("landing"), *days_of(14, 1, 15), edge - timedelta(milliseconds=1), edge, *days_of(0, 1))
""",
    )
    # There is no partition for the month that begins at the boundary.
    assert months_of(stack, "landing") == [name(14)] * 3 + ["_default", name(0)]


def test_a_month_that_the_default_partition_has_begun_is_taken_over_on_another_day(stack: Stack) -> None:
    run(
        stack,
        """
assert partitions.drop(month(-2), lambda span: True)
begun = tenant("begun")
write_at(begun, *days_of(-2, 3))
assert partitions.create_upcoming() == [month(-2)]
assert partitions.create_upcoming() == []
write_at(begun, *days_of(-2, 3, 4))
""",
    )
    assert months_of(stack, "begun") == ["_default", "_default", name(-2)]


def test_a_month_of_which_the_default_partition_has_the_last_day_is_not_made(stack: Stack) -> None:
    run(
        stack,
        """
write_at(tenant("late", 0), month(18).end - timedelta(hours=1))
with partitions.partition_lock(), connection.cursor() as cursor:
    assert not partitions._create(cursor, month(18))
""",
    )
    assert name(18) not in partitions(stack)
    assert months_of(stack, "late") == ["_default"]


def test_many_processes_make_and_drop_partitions_at_once(stack: Stack) -> None:
    made = """
from concurrent.futures import ThreadPoolExecutor
assert partitions.drop(month(-1), lambda span: True)
with ThreadPoolExecutor(8) as pool:
    made = [month for months in pool.map(lambda _: partitions.create_upcoming(), range(8)) for month in months]
    assert made == [month(-1)], made
    gone = list(pool.map(lambda _: partitions.drop(month(-1), lambda span: True), range(8)))
    assert sorted(gone) == [False] * 7 + [True], gone
assert partitions.create_upcoming() == [month(-1)]
"""
    run(stack, made)
    assert name(-1) in partitions(stack)


def test_a_month_that_nobody_keeps_is_dropped_and_one_that_somebody_keeps_is_pruned_in_batches(stack: Stack) -> None:
    run(
        stack,
        """
brief, lasting = tenant("brief", 30), tenant("lasting", 0)
for back in (8, 9, 10):
    make(back)
write_at(brief, *days_of(8, 2, 3), *days_of(9, 2), *days_of(10, 2))
write_at(lasting, *days_of(9, 2))
""",
    )
    output = stack.manage("prune", "--pause", "0")
    assert f"{month(8)}: 2 calls with their month pruned" in output
    assert f"{month(10)}: 1 calls with their month pruned" in output
    assert "brief: 1 calls pruned" in output
    assert months_of(stack, "brief") == []
    assert months_of(stack, "lasting") == [name(9)]
    assert partitions(stack) & {name(8), name(9), name(10)} == {name(9)}
    verified(stack)


def test_a_month_in_which_a_call_still_runs_stays(stack: Stack) -> None:
    run(
        stack,
        """
make(12)
write_at(tenant("slow", 30), *days_of(12, 2))
call = Call.objects.get(tenant__slug="slow")
RunningCall.objects.create(
    id=call.pk, tool_name="slow", status="waiting", background=True, owner=call.pk, timeout_seconds=1, task_seconds=1e9,
    arguments="", asked={"a": 1},
)
""",
    )
    stack.manage("prune", "--pause", "0")
    assert name(12) in partitions(stack)
    run(stack, "RunningCall.objects.all().delete()")
    stack.manage("prune", "--pause", "0")
    assert name(12) not in partitions(stack)


def test_calls_run_on_while_months_and_batches_are_pruned(stack: Stack, calling: list[Any]) -> None:
    run(
        stack,
        """
many = tenant("many", 30)
for back in range(4, 8):
    make(back)
    write_at(many, *days_of(back, *range(1, 28)))
write_at(tenant("most", 0), *days_of(4, 1))
write_at(many, *days_of(20, *range(1, 28)))
""",
    )
    before = len(calling)
    stack.manage("prune", "--pause", "0.01", "--batch", "3")
    assert months_of(stack, "many") == []
    assert partitions(stack) & {name(4), name(5), name(6), name(7)} == {name(4)}
    assert len(calling) - before > 10
    verified(stack)


def test_a_month_that_somebody_reads_is_left_for_another_time(stack: Stack, calling: list[Any]) -> None:
    run(stack, 'make(3)\nwrite_at(tenant("read", 30), *days_of(3, 1, 2))')
    with psycopg.connect(stack.database_url) as reader:
        reader.execute("SELECT count(*) FROM tools_app_call")
        before = len(calling)
        stack.manage("prune", "--pause", "0")
        assert len(calling) - before > 10
    assert months_of(stack, "read") == []
    assert name(3) in partitions(stack)
    stack.manage("prune", "--pause", "0")
    assert name(3) not in partitions(stack)


def test_a_worker_prunes_when_the_beat_says_so(stack: Stack, hub: Hub) -> None:
    run(stack, 'write_at(tenant("nightly", 30), *days_of(17, 1, 2))')
    assert months_of(stack, "nightly") == ["_default"] * 2
    run(
        stack,
        """
from celery import current_app
from django.conf import settings
current_app.send_task(settings.CELERY_BEAT_SCHEDULE["prune"]["task"])
""",
    )
    eventually(lambda: not months_of(stack, "nightly"))
    verified(stack)


def test_two_prunings_at_once_prune_everything_once(stack: Stack) -> None:
    run(stack, 'write_at(tenant("twice", 30), *days_of(16, *range(1, 28)))')
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(stack.manage, "prune", "--pause", "0", "--batch", "2") for _ in range(2)]
        outputs = [one.result() for one in both]
    assert months_of(stack, "twice") == []
    last = [lines[-1].split()[1] for text in outputs if (lines := [row for row in text.splitlines() if "twice" in row])]
    # A process of the hub may run between them.
    assert sum(map(int, last)) <= 27
    verified(stack)
