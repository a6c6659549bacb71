"""`python -m benchmarks.seed_calls`: generated calls of its own tenants, and their deletion."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from benchmarks.seed_calls.bulk_copy import Copier, _payload
from benchmarks.seed_calls.command import Command
from benchmarks.seed_calls.generator import made_calls
from benchmarks.seed_calls.shapes import OUTCOMES, Owner, shapes_of
from tools_app.audit.recorder.entries import Link
from tools_app.audit.verification.verify import Scope, verify
from tools_app.core.ids import made_at
from tools_app.models import ApiKey, Call, CallPayload, Tenant


def test_calls_of_many_kinds_are_made(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    call_command(Command(), calls=300, tenants=2, days=10)
    assert set(Tenant.objects.values_list("slug", flat=True)) == {"seed-1", "seed-2"}
    calls = list(Call.objects.select_related("payload"))
    assert len(calls) == 300
    for column in ("tenant_id", "tool_name", "client_name", "api_key_id", "outcome", "duration_us", "result_size"):
        assert len({getattr(call, column) for call in calls}) > 1, column
    assert {call.api_key_id for call in calls} <= set(ApiKey.objects.values_list("pk", flat=True))
    for call in calls:
        texts = call.payload.texts()
        assert (len(texts.arguments.encode()), len(texts.result.encode())) == (call.arguments_size, call.result_size)
    assert "300 calls of 300" in capsys.readouterr().out


@pytest.mark.django_db(transaction=True)
def test_they_verify_and_what_is_left_after_their_deletion_too() -> None:
    call_command(Command(), calls=50, tenants=2, days=10)
    report = verify(Scope())
    assert (report.findings, report.records, report.unsigned) == ([], 50, 0)
    call_command(Command(), undo=True)
    report = verify(Scope())
    assert (report.findings, report.records) == ([], 0)


def test_they_are_spread_over_the_days_and_their_ids_are_of_their_starts(db: None) -> None:
    call_command(Command(), calls=100, tenants=1, days=10)
    starts = list(Call.objects.order_by("started_at").values_list("started_at", flat=True))
    assert timedelta(days=9) < starts[-1] - starts[0] < timedelta(days=10)
    assert starts[-1] < timezone.now()
    for call in Call.objects.all():
        assert call.started_at - made_at(call.pk) < timedelta(milliseconds=1)
        assert call.pk.version == 7
        assert call.finished_at - call.started_at == timedelta(microseconds=call.duration_us)


def test_more_can_be_made_later(db: None) -> None:
    for tenants in (1, 2):
        call_command(Command(), calls=10, tenants=tenants, days=1)
    assert Call.objects.count() == 20
    assert ApiKey.objects.count() == 6


def test_undo_takes_away_what_was_made_and_nothing_else(tenant: Tenant) -> None:
    mine = Tenant.objects.create(slug="seed-corn", name="Seed Corn Ltd")
    for owner in (tenant, mine):
        now = timezone.now()
        Call.objects.create(tenant=owner, started_at=now, finished_at=now, duration_us=1, outcome="ok", writer=uuid4())
    call_command(Command(), calls=20, tenants=2, days=1)
    call_command(Command(), undo=True)
    assert set(Tenant.objects.all()) == {tenant, mine}
    assert set(Call.objects.values_list("tenant_id", flat=True)) == {tenant.pk, mine.pk}
    assert not CallPayload.objects.exists()


def test_undo_says_when_there_is_nothing(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    call_command(Command(), undo=True)
    assert "Nothing" in capsys.readouterr().out


def test_a_tenant_of_somebody_else_gets_no_made_up_calls(db: None) -> None:
    Tenant.objects.create(slug="seed-1", name="Grain & Sons")
    with pytest.raises(CommandError, match="not created by this command"):
        call_command(Command(), calls=10, tenants=1, days=1)
    assert not Call.objects.exists()


@pytest.mark.parametrize("option", [{"calls": 0}, {"tenants": 0}, {"tenants": 100_000}, {"days": 0}, {"days": 10**9}])
def test_numbers_out_of_bounds_are_refused(db: None, option: dict[str, int]) -> None:
    with pytest.raises(CommandError, match=f"--{next(iter(option))} must be a number from"):
        call_command(Command(), **{"calls": 10, "tenants": 1, "days": 1, **option})


def test_most_made_up_calls_go_well_and_some_do_not() -> None:
    shapes = shapes_of([Owner(uuid4(), [uuid4()]) for _ in range(20)], Random(1))
    outcomes = Counter(shape.facts["outcome"] for shape in shapes)
    assert 0.9 < outcomes["ok"] / len(shapes) < 0.97
    assert len(outcomes) > len(OUTCOMES) / 2


def test_lines_for_copy_have_a_value_for_every_column() -> None:
    now = datetime.now(UTC)
    copier, columns = Copier(), len(Call._meta.concrete_fields)
    for row in made_calls([Owner(uuid4(), [uuid4()])], 500, now - timedelta(days=1), now):
        line = copier._call(uuid4(), row, Link(1, b"hash"))
        assert line.count("\t") == columns - 1
        assert line.startswith(f"{row.id.hex}\t")
        assert re.fullmatch(r"[0-9a-f]{32}(\t[^\t\n]*){3}\n", _payload(row))
