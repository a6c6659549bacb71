"""The witness file: a truncated audit log is detected, even if its checkpoints were deleted too."""

import logging
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone

from tests.audit.chained import checked, forget, record
from tools_app.audit.changes.changes import at_command_line, recording_as
from tools_app.audit.changes.changes import record as record_change
from tools_app.audit.checkpoints import pruned, signer, witness
from tools_app.audit.checkpoints.statements import CheckpointText, Signed, signed
from tools_app.audit.verification.report import Finding, Problem
from tools_app.audit.verification.verify import Scope, verify
from tools_app.models import Action, Call, CallPayload, Change, Checkpoint, Process, Tenant

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh(transactional_db: None, settings: Any, tmp_path: Path) -> Iterator[None]:
    settings.MCPHUB_DATA_DIR = tmp_path
    forget()
    yield
    forget()


@pytest.fixture
def calls(tenant: Tenant) -> list[UUID]:
    """Records and a change, signed in two checkpoints."""
    recorded = record(4, tenant.pk)
    signer.sign()
    recorded += record(3, tenant.pk)
    with transaction.atomic(), recording_as(at_command_line()):
        record_change(Action.CHANGED, tenant, after={"name": "x"})
    signer.sign()
    return recorded


def cut_off(calls: list[UUID]) -> None:
    """Delete the newest records with their checkpoints from the database of a stopped hub."""
    CallPayload.objects.filter(pk__in=calls[4:]).delete()
    Call.objects.filter(pk__in=calls[4:]).delete()
    Change.objects.all().delete()
    Checkpoint.objects.order_by("-sequence")[0].delete()


def findings() -> list[Finding]:
    return verify(Scope(), witnessed=witness.lines()).findings


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def statement(writer: UUID, sequence: int = 1, padding: int = 0) -> Signed:
    heads = [signer.Head(uuid4(), 1, "00" * 32) for _ in range(padding)]
    text = CheckpointText(writer, sequence, None, timezone.now(), False, writer, heads, [])
    columns = signed(text)
    return Signed(columns["statement"], columns["signature"].hex(), columns["public_key"])


def test_an_untouched_log_agrees_with_what_was_witnessed(calls: list[UUID]) -> None:
    assert len(witness.lines()) == 1
    assert findings() == []


def test_newest_records_that_went_with_their_checkpoint_are_missed(calls: list[UUID]) -> None:
    witnessed_at = Checkpoint.objects.order_by("-sequence")[0].made_at
    cut_off(calls)
    assert checked().is_clean, "the database alone cannot tell"
    (finding,) = findings()
    assert finding.problem is Problem.MISSING
    assert (
        f"The database ends before what was witnessed at {witnessed_at:%Y-%m-%d %H:%M:%S} UTC: 3 records"
        in finding.message
    )
    assert "1 changes of 1 processes are missing" in finding.message


def test_the_command_says_so_and_fails(calls: list[UUID]) -> None:
    assert "No problems found." in run("verify_audit")
    cut_off(calls)
    with pytest.raises(CommandError, match="Verification of the audit log failed"):
        run("verify_audit")


def test_the_file_of_another_host_is_compared_too(calls: list[UUID], tmp_path: Path, settings: Any) -> None:
    other = tmp_path / "other"
    other.mkdir()
    witness.path().rename(other / "heads")
    cut_off(calls)
    assert "No problems found." in run("verify_audit")
    with pytest.raises(CommandError, match="Verification of the audit log failed"):
        run("verify_audit", "--heads", str(other / "heads"))
    with pytest.raises(CommandError, match="file not found"):
        run("verify_audit", "--heads", "/nowhere/at all")


def test_an_emptied_database_is_missed(calls: list[UUID]) -> None:
    for model in (CallPayload, Call, Change, Checkpoint):
        model.objects.all().delete()
    (finding,) = findings()
    assert "7 records and 1 changes" in finding.message


def test_a_checkpoint_that_says_otherwise_is_found(calls: list[UUID]) -> None:
    newest = Checkpoint.objects.order_by("-sequence")[0]
    newest.digest = bytes(32)
    newest.save()
    assert any("say otherwise now" in finding.message for finding in findings())


def test_what_was_pruned_is_not_missed(calls: list[UUID], tenant: Tenant) -> None:
    doomed = Call.objects.filter(pk__in=calls)
    pruned.note(pruned.links_of(doomed), "old")
    CallPayload.objects.filter(pk__in=calls).delete()
    doomed.delete()
    pruned.drop_checkpoints(timezone.now() + timedelta(days=1))
    assert not Checkpoint.objects.exists()
    assert [finding for finding in findings() if not finding.is_change] == []


def test_a_restore_is_accepted_with_its_reason_and_stays_on_record(calls: list[UUID], tenant: Tenant) -> None:
    cut_off(calls)
    output = run("accept_restore", "--reason", "the disk died, backup of 3:00")
    assert "3 records and 1 changes are missing" in output
    change = Change.objects.get()
    assert (change.action, change.via) == ("restored", "command")
    assert "the disk died, backup of 3:00" in change.after
    assert '"missing_records":3' in change.after
    assert findings() == []
    (aside,) = witness.path().parent.glob("audit.heads.accepted-*")
    assert len(witness.lines(aside)) == 1
    forget_memory()
    record(1, tenant.pk, of=uuid4())
    signer.sign()
    assert len(witness.lines()) == 1
    assert "There is nothing to accept" in run("accept_restore", "--reason", "again")


def forget_memory() -> None:
    """Forget the process's state, as a process started after the restore."""
    signer.checkpoint_signer.stop()


def test_a_restore_without_a_reason_is_not_accepted(calls: list[UUID]) -> None:
    cut_off(calls)
    with pytest.raises(CommandError, match="--reason must not be empty"):
        run("accept_restore", "--reason", " ")
    assert len(findings()) == 1


def test_what_another_process_signed_for_a_dead_one_is_witnessed(tenant: Tenant) -> None:
    dead = Process.objects.create(kind="worker", host="h", pid=1)
    record(2, tenant.pk, of=dead.pk)
    signer.sign_for([dead.pk])
    assert len(witness.lines()) == 1
    assert str(dead.pk) in witness.lines()[0]


def test_an_older_checkpoint_does_not_take_the_place_of_a_newer_one() -> None:
    writer = uuid4()
    newer = statement(writer, 2)
    for one in (newer, statement(writer, 1), statement(writer, 2)):
        witness.store(one)
    (line,) = witness.lines()
    assert newer.signature in line


def test_processes_that_write_at_once_lose_no_line() -> None:
    statements = [statement(uuid4()) for _ in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(witness.store, statements))
    assert len(witness.lines()) == 24


def test_the_file_is_bounded_in_processes_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "MAX_PROCESSES", 3)
    statements = [statement(uuid4(), padding=2) for _ in range(5)]
    for one in statements:
        witness.store(one)
    lines = witness.lines()
    assert [one.signature in line for one, line in zip(statements[2:], lines, strict=True)] == [True] * 3
    monkeypatch.setattr(witness, "MAX_BYTES", len(lines[0]) + len(lines[1]))
    witness.store(statement(uuid4(), padding=2))
    assert len(witness.path().read_bytes()) <= len(lines[0]) + len(lines[1])
    assert len(witness.lines()) == 1


def test_only_the_hub_may_read_it(calls: list[UUID]) -> None:
    assert stat.S_IMODE(witness.path().stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_is_logged_and_the_checkpoint_stands(
    tenant: Tenant, settings: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings.MCPHUB_DATA_DIR = tmp_path / "not there"
    record(1, tenant.pk)
    with caplog.at_level(logging.WARNING):
        signer.sign()
    assert Checkpoint.objects.count() == 1
    assert "The checkpoint is in the database, but not in" in caplog.text
    assert witness.lines() == []


def test_a_line_that_proves_nothing_is_named_and_not_kept(calls: list[UUID], tenant: Tenant) -> None:
    with witness.path().open("a") as file:
        file.write("nonsense\n")
    (finding,) = findings()
    assert (finding.problem, "Line 2 of the witness file" in finding.message) == (Problem.CHECKPOINT, True)
    record(1, tenant.pk)
    signer.sign()
    assert findings() == []
