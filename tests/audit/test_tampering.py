"""Tampering with the audit log is detected, and the first altered record is named."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone

from tests.audit.chained import change, checked, ending, found, record, rehash, write
from tools_app.audit.checkpoints import pruned, signer, statements
from tools_app.audit.recorder import chain, writers
from tools_app.audit.recorder.chain import heads
from tools_app.audit.recorder.entries import CallFinished, Link, process_id
from tools_app.audit.verification.records import chain_entries
from tools_app.audit.verification.report import Problem
from tools_app.core.ids import new_id
from tools_app.core.packing import pack
from tools_app.models import Call, CallEvent, CallPayload, ChainStart, Checkpoint, Process, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("new_chains")]


@pytest.fixture
def calls(tenant: Tenant) -> list[UUID]:
    """Six records of one chain, signed."""
    recorded = record(6, tenant.pk, events=2)
    signer.sign()
    return recorded


def copy_of(call_id: UUID, **columns: Any) -> UUID:
    """A forged record that resembles another one."""
    forged = Call.objects.get(pk=call_id)
    forged.pk = new_id()
    for name, value in columns.items():
        setattr(forged, name, value)
    forged.save(force_insert=True)
    CallPayload.objects.create(call_id=forged.pk, arguments="{}", result='"forged"')
    return forged.pk


def rewrite(chain_of: list[UUID], start: Link) -> None:
    """Recompute the hashes of altered records."""
    before = start.chain_hash
    for call_id in chain_of:
        place = next(chain_entries(Call.objects.filter(pk=call_id)))
        before = rehash(place, before)


def test_an_untouched_log_is_clean(calls: list[UUID], tenant: Tenant, other_tenant: Tenant) -> None:
    record(5, other_tenant.pk)
    record(3)
    signer.sign_last()
    report = checked()
    assert report.findings == []
    assert (report.records, report.chains, report.checkpoints, report.unsigned) == (14, 3, 2, 0)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("part", ["arguments", "result"])
def test_a_payload_that_became_another_one_of_the_same_length_is_found(
    tenant: Tenant, part: str, is_packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "COMPRESS_BYTES", 100 if is_packed else 2**20)
    entries = [ending(tenant.pk, f"paid {number} " * 20) for number in range(3)]
    write(*entries)
    signer.sign()
    row = CallPayload.objects.get(pk=entries[1].call_id)
    texts = row.texts()._asdict()
    texts[part] = texts[part].replace("1", "9")
    packed = pack(**dict(zip(("first", "second"), texts.values(), strict=True))) if is_packed else None
    stored = {"arguments": "", "result": "", "packed": packed} if is_packed else texts
    assert CallPayload.objects.filter(pk=row.pk).update(**stored) == 1
    assert (found().problem, found().call_id) == (Problem.CHANGED, entries[1].call_id)


def test_a_payload_that_is_gone_is_found(calls: list[UUID]) -> None:
    CallPayload.objects.filter(pk=calls[4]).delete()
    finding = found()
    assert (finding.problem, finding.call_id) == (Problem.CHANGED, calls[4])
    assert "gone" in finding.message


@pytest.mark.parametrize(
    "tamper",
    [
        lambda rows: rows.filter(sequence=2).update(data='{"progress":9}'),
        lambda rows: rows.filter(sequence=1).delete(),
        lambda rows: rows.filter(sequence=1).update(at=timezone.now()),
    ],
    ids=["changed", "deleted", "dated otherwise"],
)
def test_a_changed_event_is_found(calls: list[UUID], tamper: Callable[[Any], Any]) -> None:
    tamper(CallEvent.objects.filter(call_id=calls[1]))
    finding = found()
    assert (finding.problem, finding.call_id) == (Problem.CHANGED, calls[1])


def test_the_first_of_several_changes_is_named(calls: list[UUID]) -> None:
    for call_id in (calls[4], calls[1], calls[3]):
        change(call_id, cause="another")
    assert found().call_id == calls[1]


def test_a_record_that_is_gone_from_the_middle_is_named_by_its_place(calls: list[UUID], tenant: Tenant) -> None:
    Call.objects.filter(pk__in=calls[2:4]).delete()
    finding = found()
    assert (finding.problem, finding.position, finding.tenant_id) == (Problem.MISSING, 3, tenant.pk)
    assert "from 3 to 4" in finding.message
    assert str(calls[4]) in finding.message


def test_the_first_record_cannot_go_unseen(calls: list[UUID]) -> None:
    Call.objects.filter(pk=calls[0]).delete()
    assert (found().problem, found().position) == (Problem.MISSING, 1)


def test_a_tail_that_was_cut_off_is_found(calls: list[UUID]) -> None:
    Call.objects.filter(pk__in=calls[4:]).delete()
    finding = found()
    assert (finding.problem, finding.position) == (Problem.MISSING, 5)
    assert "cut off" in finding.message


def test_a_whole_chain_that_is_gone_is_found(calls: list[UUID], other_tenant: Tenant, tenant: Tenant) -> None:
    record(2, other_tenant.pk)
    Call.objects.filter(tenant=tenant).delete()
    record(2, other_tenant.pk)
    signer.sign()
    finding = found()
    assert (finding.problem, finding.position, finding.tenant_id) == (Problem.MISSING, 1, tenant.pk)


def test_two_records_that_changed_places_are_found(calls: list[UUID]) -> None:
    change(calls[1], chain_position=1000)
    change(calls[2], chain_position=2)
    change(calls[1], chain_position=3)
    finding = found()
    assert (finding.problem, finding.position, finding.call_id) == (Problem.REORDERED, 2, calls[2])
    assert str(calls[1]) in finding.message


def test_two_records_that_changed_places_and_hashes_are_found(calls: list[UUID]) -> None:
    hashes = [bytes(Call.objects.get(pk=call_id).chain_hash or b"") for call_id in calls]
    change(calls[1], chain_position=3, chain_hash=hashes[2])
    change(calls[2], chain_position=2, chain_hash=hashes[1])
    assert (found().problem, found().call_id) == (Problem.REORDERED, calls[2])


def test_a_forged_record_beside_another_one_is_found(calls: list[UUID]) -> None:
    forged = copy_of(calls[2])
    finding = found()
    assert (finding.problem, finding.position, finding.call_id) in {
        (Problem.INSERTED, 3, forged),
        (Problem.INSERTED, 4, forged),
    }


def test_a_forged_record_that_pushes_the_others_on_is_found(calls: list[UUID]) -> None:
    for position in (6, 5, 4):
        change(calls[position - 1], chain_position=position + 1)
    forged = copy_of(calls[2], chain_position=4)
    assert (found().call_id, found().position) == (forged, 4)


def test_a_record_that_moved_to_another_tenant_is_found(calls: list[UUID], other_tenant: Tenant) -> None:
    change(calls[5], tenant=other_tenant, chain_position=1)
    problems = {(finding.problem, finding.call_id) for finding in checked().findings}
    assert problems == {(Problem.CHANGED, calls[5]), (Problem.MISSING, None)}


def test_a_chain_rewritten_with_right_hashes_contradicts_what_was_signed(tenant: Tenant) -> None:
    calls = record(2, tenant.pk)
    signer.sign()
    calls += record(3, tenant.pk)
    signer.sign()
    change(calls[3], cause="another")
    rewrite(calls, chain.start_of(process_id(), tenant.pk))
    finding = found()
    assert (finding.problem, finding.position, finding.call_id) == (Problem.REWRITTEN, 3, calls[2])


def test_a_forged_record_after_a_processes_last_word_is_found(calls: list[UUID], tenant: Tenant) -> None:
    signer.sign_last()
    forged = record(1, tenant.pk)[0]
    assert (found().problem, found().call_id) == (Problem.INSERTED, forged)


def test_a_forged_process_is_found(calls: list[UUID], tenant: Tenant) -> None:
    forged = record(2, tenant.pk, of=uuid4())
    finding = found()
    assert (finding.problem, finding.position, finding.call_id) == (Problem.UNSIGNED, 1, forged[0])


def test_a_forged_record_without_a_chain_is_found(calls: list[UUID]) -> None:
    forged = copy_of(calls[0], chain_position=None, chain_hash=None)
    assert (found().problem, found().call_id) == (Problem.UNCHAINED, forged)


def test_what_was_written_in_this_minute_need_not_be_signed_yet(calls: list[UUID], tenant: Tenant) -> None:
    write(ending(tenant.pk, at=timezone.now()))
    report = checked()
    assert (report.findings, report.unsigned) == ([], 1)


def test_each_process_has_chains_of_its_own(tenant: Tenant) -> None:
    one, other = uuid4(), uuid4()
    mixed = [ending(tenant.pk, of=of) for of in (one, other, one, one, other)]
    write(*mixed[:3])
    write(*mixed[3:])
    places = Call.objects.order_by("writer", "chain_position").values_list("writer", "chain_position")
    assert sorted(places) == sorted([(one, 1), (one, 2), (one, 3), (other, 1), (other, 2)])
    change(mixed[4].call_id, cause="another")
    broken = [finding for finding in checked().findings if finding.problem is Problem.CHANGED]
    assert [(finding.writer, finding.position) for finding in broken] == [(other, 2)]


# --- The statements themselves --------------------------------------------------------------------------------


def test_a_checkpoint_that_is_gone_is_found(tenant: Tenant) -> None:
    for _ in range(3):
        record(1, tenant.pk)
        signer.sign()
    Checkpoint.objects.filter(sequence=2).delete()
    assert found().problem is Problem.CHECKPOINT
    assert "from 2 to 2" in found().message


def test_all_checkpoints_gone_leave_records_that_nobody_signed(calls: list[UUID]) -> None:
    Checkpoint.objects.all().delete()
    assert (found().problem, found().call_id) == (Problem.UNSIGNED, calls[0])


def test_a_changed_checkpoint_proves_nothing(calls: list[UUID]) -> None:
    row = Checkpoint.objects.get()
    row.statement = row.statement.replace('"last":false', '"last":true')
    row.save()
    problems = [finding.problem for finding in checked().findings]
    assert problems == [Problem.CHECKPOINT, Problem.UNSIGNED]
    assert "signature does not fit" in checked().findings[0].message


def test_a_column_of_a_checkpoint_cannot_say_what_was_not_signed(calls: list[UUID]) -> None:
    Checkpoint.objects.update(made_at=timezone.now() + timedelta(days=1))
    assert "do not say what was signed" in checked().findings[0].message


def test_a_checkpoint_of_another_key_proves_nothing(calls: list[UUID], settings: Any) -> None:
    settings.MCPHUB_AUDIT_KEY = "another key, which nobody here was told of"
    finding = checked().findings[0]
    assert (finding.problem, finding.writer) == (Problem.CHECKPOINT, process_id())
    assert "unknown key" in finding.message


def test_another_key_counts_once_it_is_known(calls: list[UUID], settings: Any) -> None:
    settings.MCPHUB_AUDIT_PUBLIC_KEYS = [Checkpoint.objects.get().public_key]
    settings.MCPHUB_AUDIT_KEY = "another key, which nobody here was told of"
    assert checked().is_clean


def test_a_process_that_vanishes_with_its_checkpoints_is_missed_by_the_others(tenant: Tenant) -> None:
    gone = Process.objects.create(id=uuid4(), kind="web", host="h", pid=1)
    record(2, tenant.pk, of=gone.pk)
    signer.sign_for([gone.pk])
    record(2, tenant.pk)
    signer.sign()
    assert checked().is_clean
    Call.objects.filter(writer=gone.pk).delete()
    Checkpoint.objects.filter(writer=gone.pk).delete()
    assert (found().problem, found().writer) == (Problem.CHECKPOINT, gone.pk)


# --- What may happen to an honest hub -------------------------------------------------------------------------


def test_a_batch_that_fails_leaves_no_hole(calls: list[UUID], tenant: Tenant) -> None:
    good = ending(tenant.pk)
    bad = CallFinished(good.facts._replace(tool_name=None), good.row, good.payload, settles=False)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="tool_name"):
        write(ending(tenant.pk), bad, ending(tenant.pk))
    write(ending(tenant.pk))
    signer.sign()
    report = checked()
    assert (report.findings, report.records) == ([], 7)


def write_and_fail(entry: CallFinished, *, committed: bool) -> None:
    """Write on a connection that breaks before the commit or before its response."""
    with heads().transaction() as chains:
        with transaction.atomic():
            statements = writers.statements()
            writers.insert_rows([entry], statements, chains)
            statements.flush()
            if not committed:
                raise OperationalError
        raise OperationalError


def test_a_commit_whose_answer_was_lost_leaves_neither_hole_nor_fork(calls: list[UUID], tenant: Tenant) -> None:
    for committed in (True, False, False, True):
        with pytest.raises(OperationalError):
            write_and_fail(ending(tenant.pk), committed=committed)
    write(ending(tenant.pk))
    signer.sign()
    report = checked()
    assert (report.findings, report.records) == ([], 9)


def test_the_last_word_of_a_process_covers_a_commit_whose_answer_was_lost(calls: list[UUID], tenant: Tenant) -> None:
    with pytest.raises(OperationalError):
        write_and_fail(ending(tenant.pk), committed=True)
    signer.sign_last()
    report = checked()
    assert (report.findings, report.unsigned) == ([], 0)


def test_a_call_that_somebody_else_settled_leaves_no_hole(calls: list[UUID], tenant: Tenant) -> None:
    late = ending(tenant.pk, settles=True)
    assert write(ending(tenant.pk), late, ending(tenant.pk)) == {late.call_id}
    signer.sign()
    report = checked()
    assert (report.findings, report.records) == ([], 8)


def test_what_a_dead_process_left_is_signed_by_another_one(tenant: Tenant) -> None:
    dead = Process.objects.create(id=uuid4(), kind="worker", host="h", pid=1)
    recorded = record(3, tenant.pk, of=dead.pk)
    report = checked()
    assert (report.findings, [tail.writer for tail in report.tails]) == ([], [dead.pk])
    change(recorded[0], cause="another")
    assert (found().problem, found().call_id) == (Problem.CHANGED, recorded[0])
    change(recorded[0], cause="")
    signer.sign_for([dead.pk])
    report = checked()
    assert (report.findings, report.tails) == ([], [])
    assert Checkpoint.objects.get().writer == dead.pk


def test_what_no_known_process_wrote_is_no_tail_of_a_dead_one(tenant: Tenant) -> None:
    forged = record(3, tenant.pk, of=uuid4())
    assert (found().problem, found().call_id, checked().tails) == (Problem.UNSIGNED, forged[0], [])


def test_a_process_that_signs_each_minute_leaves_no_hours_of_unsigned_records(tenant: Tenant) -> None:
    dead = Process.objects.create(id=uuid4(), kind="worker", host="h", pid=1)
    entries = [ending(tenant.pk, of=dead.pk, at=timezone.now() - timedelta(hours=hours)) for hours in (3, 2, 1)]
    write(*entries)
    assert (found().problem, found().call_id) == (Problem.UNSIGNED, entries[0].call_id)


def test_who_has_signed_takes_leave_and_nobody_else(calls: list[UUID], tenant: Tenant, monkeypatch: Any) -> None:
    Process.objects.get_or_create(id=process_id(), defaults={"kind": "worker", "host": "h", "pid": 1})
    record(1, tenant.pk)
    monkeypatch.setattr(signer, "_put", Mock(side_effect=OperationalError))
    signer.sign_last()
    assert Process.objects.filter(pk=process_id()).exists()
    monkeypatch.undo()
    signer.sign_last()
    assert not Process.objects.filter(pk=process_id()).exists()
    assert checked().is_clean


def test_a_process_that_was_taken_for_dead_signs_on(calls: list[UUID], tenant: Tenant) -> None:
    Process.objects.get_or_create(id=process_id(), defaults={"kind": "web", "host": "h", "pid": 1})
    record(1, tenant.pk)
    signer.sign_for([process_id()])
    record(2, tenant.pk)
    signer.sign()
    assert list(Checkpoint.objects.order_by("sequence").values_list("sequence", flat=True)) == [1, 2, 3]
    assert checked().is_clean


def test_a_checkpoint_whose_answer_was_lost_is_not_written_twice(calls: list[UUID], monkeypatch: Any) -> None:
    record(1)
    written = signer._put

    def lost(text: statements.CheckpointText) -> None:
        written(text)
        raise OperationalError

    monkeypatch.setattr(signer, "_put", lost)
    with pytest.raises(OperationalError):
        signer.sign()
    monkeypatch.setattr(signer, "_put", written)
    record(1)
    signer.sign()
    assert list(Checkpoint.objects.order_by("sequence").values_list("sequence", flat=True)) == [1, 2, 3]
    assert checked().is_clean


def test_nothing_new_is_nothing_to_sign(calls: list[UUID]) -> None:
    signer.sign()
    assert Checkpoint.objects.count() == 1
    signer.sign_last()
    signer.sign_last()
    assert Checkpoint.objects.count() == 2


# --- Pruning --------------------------------------------------------------------------------------------------


def prune(calls: list[UUID]) -> None:
    doomed = Call.objects.filter(pk__in=calls)
    pruned.note(pruned.links_of(doomed), "old")
    for model in (CallEvent, CallPayload):
        model.objects.filter(call_id__in=calls).delete()
    doomed.delete()


def test_a_pruned_log_is_clean(calls: list[UUID], tenant: Tenant) -> None:
    prune(calls[:2])
    assert checked().is_clean
    prune(calls[2:4])
    start = ChainStart.objects.get()
    assert (start.position, checked().findings) == (4, [])
    record(2, tenant.pk)
    signer.sign()
    assert checked().is_clean
    prune(calls[4:])
    assert checked().is_clean


def test_records_may_be_pruned_out_of_their_order(calls: list[UUID]) -> None:
    prune([calls[0], calls[2], calls[3]])
    assert checked().is_clean
    prune([calls[1]])
    assert (ChainStart.objects.get().position, checked().findings) == (4, [])


def test_what_was_deleted_beside_the_pruned_is_found(calls: list[UUID]) -> None:
    prune(calls[:2])
    Call.objects.filter(pk=calls[2]).delete()
    assert (found().problem, found().position) == (Problem.MISSING, 3)


def test_deleting_without_a_statement_is_not_pruning(calls: list[UUID]) -> None:
    prune(calls[:3])
    ChainStart.objects.all().delete()
    assert (found().problem, found().position) == (Problem.MISSING, 1)


def test_a_forged_statement_of_pruning_proves_nothing(calls: list[UUID]) -> None:
    prune(calls[:2])
    start = ChainStart.objects.get()
    start.statement = start.statement.replace('"runs":[[1,2', '"runs":[[1,3')
    start.save()
    Call.objects.filter(pk=calls[2]).delete()
    assert [finding.problem for finding in checked().findings] == [Problem.CHECKPOINT, Problem.MISSING]


def test_a_record_that_comes_back_after_it_was_pruned_is_found(calls: list[UUID]) -> None:
    old = Call.objects.get(pk=calls[1])
    prune(calls[:2])
    old.save(force_insert=True)
    assert (found().problem, found().call_id) == (Problem.INSERTED, calls[1])


def test_old_checkpoints_go_when_no_record_needs_them(tenant: Tenant, other_tenant: Tenant) -> None:
    one = record(2, tenant.pk)
    signer.sign()
    record(2, other_tenant.pk)
    signer.sign()
    record(2, other_tenant.pk)
    signer.sign()
    later = timezone.now() + timedelta(days=1)
    assert pruned.drop_checkpoints(later) == 0
    prune(one)
    assert pruned.drop_checkpoints(timezone.now() - timedelta(days=1)) == 0
    assert pruned.drop_checkpoints(later) == 2
    assert checked().is_clean
    record(1, other_tenant.pk)
    signer.sign()
    assert checked().is_clean
    Checkpoint.objects.filter(sequence=3).delete()
    assert "from 3 to 3" in found().message


# --- A part of it ---------------------------------------------------------------------------------------------


def test_one_tenant_can_be_verified_alone(calls: list[UUID], tenant: Tenant, other_tenant: Tenant) -> None:
    theirs = record(2, other_tenant.pk)
    signer.sign()
    change(theirs[1], cause="another")
    report = checked(tenant_id=tenant.pk)
    assert (report.findings, report.records, report.chains) == ([], 6, 1)
    assert found(tenant_id=other_tenant.pk).call_id == theirs[1]


def test_what_is_older_can_be_passed_over(tenant: Tenant) -> None:
    now = timezone.now()
    endings = [ending(tenant.pk, at=now - timedelta(days=9 - number)) for number in range(6)]
    write(*endings)
    signer.sign()
    since = now - timedelta(days=6, hours=12)
    change(endings[1].call_id, cause="another")
    report = checked(since=since)
    assert (report.findings, report.records, report.skipped) == ([], 3, 3)
    change(endings[4].call_id, cause="another")
    assert found(since=since).call_id == endings[4].call_id


def test_the_newest_records_can_be_verified_alone(calls: list[UUID], tenant: Tenant) -> None:
    change(calls[1], cause="another")
    report = checked(newest=3)
    assert (report.findings, report.records) == ([], 3)
    change(calls[4], cause="another")
    assert found(newest=3).call_id == calls[4]
    assert found(newest=3, tenant_id=tenant.pk).call_id == calls[4]


def test_a_call_that_took_long_is_no_hole_among_the_newest(tenant: Tenant) -> None:
    slow = ending(tenant.pk, "slow")
    record(2, tenant.pk)
    quick = [ending(tenant.pk) for _ in range(3)]
    write(quick[0], slow, *quick[1:])
    signer.sign()
    report = checked(newest=3)
    assert (report.findings, report.records) == ([], 4)
    Call.objects.filter(pk=slow.call_id).delete()
    assert (found(newest=3).problem, found(newest=3).position) == (Problem.MISSING, 4)


def test_a_verification_ends_when_its_time_is_up(calls: list[UUID]) -> None:
    report = checked(seconds=0.0)
    assert report.was_stopped
    assert report.records < len(calls)
