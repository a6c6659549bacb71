"""Hashes of records: they cover all columns except the documented ones, and never change."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.db import models, transaction

from tests.audit.chained import change, checked, ending, found, record, write
from tools_app.audit.changes.changes import at_command_line, recording_as
from tools_app.audit.changes.changes import record as record_change
from tools_app.audit.checkpoints import pruned, signer
from tools_app.audit.recorder import chain, writers
from tools_app.audit.recorder.entries import HASHED
from tools_app.audit.verification.report import Problem
from tools_app.models import Action, Call, CallEvent, CallPayload, ChainStart, Change, Checkpoint, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("new_chains")]

PARTS: dict[str, type[models.Model]] = {
    "call": Call,
    "payload": CallPayload,
    "event": CallEvent,
    "change": Change,
    "checkpoint": Checkpoint,
    "statement of pruning": ChainStart,
}


def documented() -> set[tuple[str, str]]:
    """The columns that docs/audit.md says are not hashed, each with a reason."""
    text = (Path(settings.BASE_DIR) / "docs" / "audit.md").read_text()
    table = text.partition("| not hashed | why |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` of a ([\w ]+) \| (\S.*) \|$", table, re.MULTILINE)
    assert rows
    return {(part, column) for column, part, _ in rows}


@pytest.fixture
def log(tenant: Tenant, other_tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed records of each kind: the second of each is neither the first nor the last of its chain."""
    monkeypatch.setattr(writers, "COMPRESS_BYTES", 100)
    gone = record(2, other_tenant.pk)
    record(3, other_tenant.pk)
    write(*(ending(tenant.pk, "long " * 40, events=2) for _ in range(3)))
    with transaction.atomic(), recording_as(at_command_line()):
        for number in range(3):
            record_change(Action.CHANGED, tenant, after={"number": number})
    signer.sign()
    pruned.note(pruned.links_of(Call.objects.filter(pk__in=gone)), "old")
    CallPayload.objects.filter(pk__in=gone).delete()
    Call.objects.filter(pk__in=gone).delete()
    record(1, tenant.pk)
    signer.sign()
    assert checked().is_clean


def another(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1000
        case str():
            return value[:-1] + ("x" if value[-1:] != "x" else "y")
        case bytes() | memoryview():
            return bytes(value)[:-1] + bytes([bytes(value)[-1] ^ 1])
        case datetime():
            return value + timedelta(microseconds=1)
        case UUID():
            return uuid4()
    raise AssertionError(value)


FILLED: dict[str, Any] = {"UUIDField": uuid4(), "CharField": "x", "TextField": "x", "BooleanField": True}
ORDER: dict[type[models.Model], str] = {Call: "id", CallPayload: "call_id", CallEvent: "call_id", Change: "position"}


@contextmanager
def tampered(model: type[models.Model], field: "models.Field[Any, Any]") -> Iterator[None]:
    """Temporarily alter one column of one row, like an attacker with write access to the database."""
    keys = list(model._default_manager.order_by(ORDER.get(model, "made_at")).values_list("pk", flat=True))
    row = model._default_manager.filter(pk=keys[-2] if len(keys) > 1 else keys[0])
    before = row.get()
    old = getattr(before, field.attname)
    referred = field
    while isinstance(referred, models.ForeignKey):
        referred = referred.target_field
    new = FILLED.get(referred.get_internal_type(), 5) if old in (None, "") else another(old)
    assert row.update(**{field.attname: new}) == 1
    yield
    model._default_manager.exclude(pk__in=keys).delete()
    row.delete()
    model._default_manager.bulk_create([before])


@pytest.mark.parametrize("part", PARTS)
def test_no_column_can_be_changed_unseen_but_those_that_are_documented(log: None, part: str) -> None:
    unseen = set()
    for field in PARTS[part]._meta.concrete_fields:
        with tampered(PARTS[part], field):
            unseen |= {(part, field.column)} if checked().is_clean else set()
    assert checked().is_clean
    assert unseen == {(of, column) for of, column in documented() if of == part}


# --- The version of a hash ------------------------------------------------------------------------------------------

BEFORE = bytes(range(32))
TEXTS = '{"message":"é"}', '{"content":[]}'
VALUES: dict[str, Any] = {
    "id": UUID("01912345-0000-7000-8000-000000000001"),
    "tenant_id": UUID("01912345-0000-7000-8000-000000000002"),
    "tool_name": "echo",
    "tool_revision": 3,
    "method": "tools/call",
    "request_id": "7",
    "protocol_version": "2026-07-28",
    "client_name": "raw",
    "client_version": "7",
    "remote_address": "127.0.0.1",
    "trace_id": "",
    "started_at": datetime(2026, 5, 4, 12, 30, 1, 234567, tzinfo=UTC),
    "person_id": 7,
    "finished_at": datetime(2026, 5, 4, 12, 30, 2, 0, tzinfo=UTC),
    "duration_us": 765433,
    "waited_us": 1200,
    "outcome": "ok",
    "http_status": 200,
    "is_error": False,
    "cause": "",
    "background": False,
    "arguments_size": 16,
    "result_size": 14,
    "event_count": 2,
    "repeated": 1,
    "writer": UUID("01912345-0000-7000-8000-000000000003"),
    "shaped_size": 9,
    "recorded_us": 55,
}
WHY = "Records hashed by this version are in databases: never change what it covers, add one (recorder/entries.py)."


def test_what_a_version_covers_is_never_changed() -> None:
    # Columns that later versions added are null in its records.
    row = chain.covered((1, *map(VALUES.get, HASHED)))
    assert row is not None
    assert (
        chain.digest(BEFORE, row, "ab" * 32, *TEXTS).hex()
        == "f2dfffa2d32b9a4e30789938fbd66e47243a19c45c37ef9c461e5a599af09366"
    ), WHY


def test_where_a_chain_begins_is_never_changed() -> None:
    starts = [chain.start_of(VALUES["writer"], tenant_id) for tenant_id in (VALUES["tenant_id"], None)]
    assert [(start.chain_position, start.chain_hash.hex()) for start in starts] == [
        (0, "145765a019530d70ffdf6bb23474c548f8d4df53a58d32d8d7969037c0ff3fa4"),
        (0, "5dd6a6a7cb58b6212441de0532958a33edfd0621a64e3d0d255c147d9061e94b"),
    ], WHY


def test_a_column_that_a_version_added_must_be_null_in_records_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = dict(zip(HASHED, map(VALUES.get, HASHED), strict=True))
    monkeypatch.setattr(chain, "ADDED", {2: ("shaped_size",)})
    monkeypatch.setattr(chain, "HASH_VERSION", 2)
    assert chain.covered((1, *columns.values())) is None
    assert chain.covered((2, *columns.values())) == (2, *columns.values())
    columns["shaped_size"] = None
    assert chain.covered((1, *columns.values())) == (1, *(columns[name] for name in HASHED if name != "shaped_size"))
    assert chain.covered((3, *columns.values())) is None


@pytest.mark.parametrize("version", [None, 0, chain.HASH_VERSION + 1])
def test_a_version_that_this_hub_does_not_know_is_named(tenant: Tenant, version: int | None) -> None:
    calls = record(3, tenant.pk)
    signer.sign()
    change(calls[1], hash_version=version)
    finding = found()
    assert (finding.problem, finding.call_id) == (Problem.CHANGED, calls[1])
    assert f"version {version}, which this hub does not know" in finding.message
