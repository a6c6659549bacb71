"""Call statistics: exact with every writer, bounded in rows, and unchanged by merging."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.audit.aged import days_ago, id_of
from tools_app.audit import retention
from tools_app.audit.models import DURATION_BOUNDS_US, DURATION_COLUMNS
from tools_app.audit.recorder.entries import (
    CallFinished,
    CallStarted,
    Facts,
    FinishedRow,
    Payload,
    RunningRow,
)
from tools_app.audit.recorder.writers import write
from tools_app.audit.stats import counters, rebuild, storage
from tools_app.audit.stats.counters import NIL, Names, numbers_of, period_of
from tools_app.core.ids import new_id
from tools_app.models import Call, CallFigures, Tenant

PROCESS, TENANT, KEY, TOOL = new_id(), new_id(), new_id(), new_id()


def ending(
    outcome: str = "ok", took: int = 1500, *, settles: bool = False, writer: UUID = PROCESS, **more
) -> CallFinished:
    at = more.get("started_at", timezone.now())
    known = dict.fromkeys(Facts._fields, "") | {
        "person_id": None,
        "id": id_of(at),
        "tenant_id": TENANT,
        "api_key_id": KEY,
        "session_id": None,
        "tool_id": TOOL,
        "tool_name": "echo",
        "tool_revision": 1,
        "method": "tools/call",
        "client_name": "claude",
        "started_at": at,
    }
    known |= {name: value for name, value in more.items() if name in Facts._fields}
    repeated = more.get("repeated", 1)
    ended = FinishedRow(at, took, None, outcome, 200, None, None, "", False, 0, 0, 0, repeated, writer)
    return CallFinished(Facts(**known), ended, Payload(known["id"], "", ""), settles=settles)


def totals(**where: object) -> tuple[int, int, int]:
    """The sums of calls, errors and denials of all rows."""
    rows = CallFigures.objects.filter(**where).values_list("calls", "errors", "denials")
    return tuple(map(sum, zip(*rows, strict=True))) if rows else (0, 0, 0)  # type: ignore[return-value]


def snapshot() -> Counter[tuple[object, ...]]:
    """The statistics, independent of how they are split into rows."""
    found: Counter[tuple[object, ...]] = Counter()
    for row in CallFigures.objects.values():
        for name in counters.NUMBER_COLUMNS:
            found[row["tenant_id"], row["tool_name"], row["api_key_id"], row["client_name"], name] += row[name]
    return +found


@pytest.fixture(autouse=True)
def _new_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_names", Names())


def record_batch(*endings: CallFinished) -> None:
    write(list(endings))


# What a batch adds


def test_a_batch_is_added_to_the_figures_of_its_process(transactional_db: None) -> None:
    for _ in range(2):
        write([ending(took=100), ending("tool_error", took=2000), ending(tool_name="sum", took=1)])

    echo = CallFigures.objects.get(tool_name="echo")
    assert (echo.calls, echo.errors, echo.denials, echo.took_us) == (4, 2, 0, 4200)
    assert (echo.took_00, echo.took_03, echo.writer, echo.seconds) == (2, 2, PROCESS, 300)
    assert (echo.tenant_id, echo.api_key_id, echo.client_name) == (TENANT, KEY, "claude")
    assert echo.begins_at.minute % 5 == echo.begins_at.second == echo.begins_at.microsecond == 0
    assert CallFigures.objects.get(tool_name="sum").calls == 2


def test_many_kinds_are_written_at_once(transactional_db: None) -> None:
    write([ending(api_key_id=new_id()) for _ in range(70)])
    assert CallFigures.objects.count() == totals()[0] == 70


def test_what_somebody_else_settled_is_counted_once(transactional_db: None) -> None:
    late = ending(settles=True)
    begun = RunningRow("running", False, new_id(), 5.0, False, "", None, None, None, "{}", timezone.now())
    write([CallStarted(late.facts, begun)])
    write([late])
    assert write([late, ending("timeout")]) == {late.call_id}
    assert totals() == (2, 1, 0)


def test_a_batch_that_fails_leaves_no_figures(transactional_db: None) -> None:
    known = ending()
    write([known])
    with pytest.raises(Exception, match=r"(?i)unique"):
        write([ending(), known])
    assert totals() == (1, 0, 0)


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        ("ok", (1, 0, 0)),
        ("cancelled", (1, 0, 0)),
        ("input_required", (1, 0, 0)),
        ("tool_error", (1, 1, 0)),
        ("rejected", (1, 1, 0)),
        ("timeout", (1, 1, 0)),
        ("lost", (1, 1, 0)),
        ("interrupted", (1, 1, 0)),
        ("denied", (0, 0, 7)),
    ],
)
def test_each_outcome_counts_as_what_it_is(outcome: str, counts: tuple[int, int, int]) -> None:
    (numbers,) = numbers_of([ending(outcome, repeated=7)], Names()).values()
    assert tuple(numbers[:3]) == counts
    assert sum(numbers[counters.CLASSES :]) == counts[0]


@pytest.mark.parametrize(
    ("took", "column"),
    [(0, 0), (250, 0), (251, 1), (500, 1), (DURATION_BOUNDS_US[-1], 20), (DURATION_BOUNDS_US[-1] + 1, 21)],
)
def test_a_duration_falls_into_the_class_whose_bound_it_does_not_pass(took: int, column: int) -> None:
    (numbers,) = numbers_of([ending(took=took)], Names()).values()
    assert numbers[counters.CLASSES + column] == 1


def test_a_call_counts_in_the_period_in_which_it_started() -> None:
    began = datetime(2026, 5, 4, 11, 59, 59, tzinfo=UTC)
    (kind,) = numbers_of([ending(started_at=began)], Names())
    assert kind[1] == datetime(2026, 5, 4, 11, 55, tzinfo=UTC)


def test_what_belongs_to_nobody_has_the_nil_id() -> None:
    (kind,) = numbers_of([ending("denied", tenant_id=None, api_key_id=None, tool_id=None)], Names())
    assert (kind[0], kind[3]) == (NIL, NIL)


# Bounds on values from clients


@pytest.mark.parametrize(
    ("outcome", "tool_id", "counted"),
    [("rejected", None, ""), ("denied", None, ""), ("rejected", TOOL, "echo"), ("ok", None, "echo")],
)
def test_only_names_that_were_found_have_figures_of_their_own(outcome: str, tool_id: UUID | None, counted: str) -> None:
    (kind,) = numbers_of([ending(outcome, tool_id=tool_id)], Names())
    assert kind[2] == counted


def test_clients_names_are_cut_and_so_many_at_most_have_rows() -> None:
    names = Names()
    counted = numbers_of([ending(client_name=f"{number:03d}{'x' * 100}") for number in range(80)], names)
    assert len(counted) == counters.MAX_CLIENTS + 1
    assert max(len(kind[4]) for kind in counted) == 60
    (rest,) = [numbers for kind, numbers in counted.items() if kind[4] == ""]
    assert rest[counters.CALLS] == 30
    # Statistics of other tenants stay.
    assert next(iter(numbers_of([ending(tenant_id=new_id(), client_name="new")], names)))[4] == "new"


def test_uris_that_clients_make_up_are_bounded_also_for_calls_that_began_long_ago() -> None:
    names, old = Names(), timezone.now() - timedelta(hours=1)
    numbers_of([ending()], names)
    for start in range(0, 700, 100):
        batch = [ending(tool_name=f"docs://{start + number}", tool_id=None, started_at=old) for number in range(100)]
        counted = numbers_of(batch, names)
    assert [kind[2] for kind in counted] == [""]


def test_names_of_past_periods_are_forgotten() -> None:
    names, now = Names(), period_of(timezone.now())
    for number in range(10):
        names.bounded(TENANT, now + number * counters.PERIOD, "echo", "claude")
    assert len(names._known) == 2


# Figures get older


def old_figures() -> None:
    """Statistics of two processes: five times within one hour of yesterday, and one of now."""
    yesterday = period_of(timezone.now() - timedelta(days=1), 3600)
    for number in range(5):
        at = yesterday + timedelta(minutes=10 * number)
        record_batch(ending(started_at=at, took=300 * number), ending("timeout", started_at=at, tool_name="sum"))
        record_batch(ending(started_at=at, writer=new_id()))
    record_batch(ending())


@pytest.mark.django_db(transaction=True)
def test_old_rows_of_all_processes_become_one_for_each_hour_and_kind() -> None:
    old_figures()
    before = snapshot()
    assert storage.merge() == 15
    assert snapshot() == before
    assert sorted(CallFigures.objects.values_list("seconds", "tool_name", "calls", "errors")) == [
        (300, "echo", 1, 0),
        (3600, "echo", 10, 0),
        (3600, "sum", 5, 5),
    ]
    assert storage.merge() == 0


@pytest.mark.django_db(transaction=True)
def test_a_late_call_is_added_to_an_hour_that_was_merged() -> None:
    old_figures()
    storage.merge()
    record_batch(ending(started_at=timezone.now() - timedelta(days=1)))
    before = snapshot()
    assert storage.merge() == 1
    assert snapshot() == before


@pytest.mark.django_db(transaction=True)
def test_what_is_long_ago_becomes_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "BATCH", 2)
    for hour in range(5):
        record_batch(ending(started_at=period_of(days_ago(70), storage.DAY) + timedelta(hours=hour)))
    storage.merge()
    assert list(CallFigures.objects.values_list("seconds", "calls")) == [(86400, 5)]


@pytest.mark.django_db(transaction=True)
def test_a_turn_ends_in_time_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "BATCH", 4)
    old_figures()
    turns = [storage.merge(turn_seconds=-1) for _ in range(5)]
    assert turns == [4, 4, 4, 3, 0]
    assert totals() == (16, 5, 0)


@pytest.mark.django_db(transaction=True)
def test_pruning_takes_what_is_too_old_and_what_deleted_tenants_left(tenant: Tenant) -> None:
    record_batch(ending(tenant_id=tenant.pk, started_at=days_ago(450)), ending(tenant_id=tenant.pk), ending("denied"))
    record_batch(ending("denied", tenant_id=None, api_key_id=None))
    steps = [step for step in retention.prune() if step.what == "figures"]
    assert sum(step.rows for step in steps) == 2
    assert set(CallFigures.objects.values_list("tenant_id", flat=True)) == {tenant.pk, NIL}


# Rebuilding statistics


@pytest.mark.django_db(transaction=True)
def test_rebuilding_finds_what_was_counted(tenant: Tenant) -> None:
    for days in (0.2, 1.5, 3, 70):
        record_batch(ending(tenant_id=tenant.pk, started_at=days_ago(days)))
        record_batch(
            ending("denied", tenant_id=None, api_key_id=None, tool_id=None, started_at=days_ago(days), repeated=3)
        )
    record_batch(ending(tenant_id=tenant.pk, started_at=period_of(timezone.now(), 3600)))
    before = snapshot()
    CallFigures.objects.filter(begins_at__lt=period_of(timezone.now(), 3600)).delete()
    for _ in range(2):
        assert sum(step.records for step in rebuild.rebuild()) == 8
        assert snapshot() == before
    assert set(CallFigures.objects.values_list("seconds", flat=True)) == {300, 3600, 21600, 86400}


@pytest.mark.django_db(transaction=True)
def test_rebuilding_leaves_figures_of_calls_that_were_pruned(tenant: Tenant) -> None:
    record_batch(ending(tenant_id=tenant.pk, started_at=days_ago(20)), ending(started_at=days_ago(20)))
    Tenant.objects.update(keep_days=10)
    Call.objects.filter(tenant=tenant).delete()
    before = snapshot()
    list(rebuild.rebuild())
    assert snapshot() == before


@pytest.mark.django_db(transaction=True)
def test_the_command_tells_what_it_counts() -> None:
    def output(*arguments: str) -> list[str]:
        out = StringIO()
        call_command("rebuild_figures", *arguments, stdout=out)
        return out.getvalue().splitlines()

    assert output() == ["No calls to count."]
    at = period_of(days_ago(5), storage.DAY)
    record_batch(ending(started_at=at), ending(started_at=at))
    assert output() == [f"{at:%Y-%m-%d} 00:00: 2 records", "2 records counted."]
    assert output("--since", f"{days_ago(2):%Y-%m-%d}") == ["No calls to count."]
    with pytest.raises(CommandError, match="--since must be a date"):
        output("--since", "2026-13-01")


def test_there_is_a_column_for_each_class() -> None:
    assert len(DURATION_COLUMNS) == len(DURATION_BOUNDS_US) + 1
    assert set(counters.COLUMNS) == {field.column for field in CallFigures._meta.concrete_fields} - {"id"}
