"""Tampering with recorded changes is detected."""

from itertools import count

import pytest
from django.db.models import F

from tools_app.audit.changes import changes
from tools_app.audit.changes.changes import record, recording_as
from tools_app.audit.checkpoints import signer
from tools_app.audit.checkpoints.statements import exported_lines
from tools_app.audit.verification.report import Problem
from tools_app.audit.verification.verify import Scope, verify
from tools_app.models import Action, Change, Checkpoint, Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _notary_begins_anew():
    signer.checkpoint_signer.stop()
    yield
    signer.checkpoint_signer.stop()


@pytest.fixture
def five(tenant):
    """Five changes."""
    with recording_as(changes.at_command_line()):
        return [record(Action.CHANGED, tenant, after={"number": number}) for number in range(1, 6)]


def findings(**scope):
    return verify(Scope(**scope)).findings


def only(**scope):
    (finding,) = findings(**scope)
    assert finding.is_change
    return finding.problem, finding.position


def rewrite_from(position):
    """Recompute the digests from `position` on, like an attacker who knows the algorithm."""
    before = Change.objects.filter(position=position - 1).first()
    previous = bytes(before.digest) if before else changes.START
    for change in Change.objects.filter(position__gte=position).order_by("position"):
        previous = changes.digest(previous, changes.hashed_fields(change))
        Change.objects.filter(pk=change.pk).update(digest=previous)


@pytest.mark.parametrize("scope", [{}, {"newest": 10}])
def test_nothing_is_wrong_with_what_nobody_touched(five, scope):
    report = verify(Scope(**scope))
    assert (report.findings, report.changes) == ([], 5)


@pytest.mark.parametrize(
    "altered",
    [{"after": "{}"}, {"before": '{"a": 1}'}, {"person_name": "eve"}, {"object_name": "other"}, {"action": "created"}],
)
def test_a_change_that_says_otherwise_is_named(five, altered):
    Change.objects.filter(position=3).update(**altered)
    assert only() == (Problem.CHANGED, 3)


def test_a_change_that_is_gone_is_named(five):
    Change.objects.filter(position__in=[2, 3]).delete()
    assert only() == (Problem.MISSING, 2)
    assert "from 2 to 3" in findings()[0].message


def test_changes_that_were_swapped_are_named(five):
    places = count(100)
    for position in (2, 4):
        Change.objects.filter(position=position).update(position=next(places))
    Change.objects.filter(position=100).update(position=4)
    Change.objects.filter(position=101).update(position=2)
    assert only() == (Problem.REORDERED, 2)


def test_a_change_that_was_taken_out_and_the_rest_moved_up_is_named(five):
    Change.objects.filter(position=2).delete()
    for position in (3, 4, 5):
        Change.objects.filter(position=position).update(position=F("position") - 1)
    assert only() == (Problem.CHANGED, 2)


@pytest.mark.parametrize("scope", [{}, {"newest": 10}])
def test_an_end_that_was_cut_off_is_missed_once_it_was_signed(five, scope):
    Change.objects.filter(position=5).delete()
    assert not findings(**scope)
    rewrite_from(5)
    with recording_as(changes.at_command_line()):
        record(Action.CHANGED, Tenant.objects.get(), after={"number": 5})
    signer.sign()
    Change.objects.filter(position__gte=4).delete()
    assert only(**scope) == (Problem.MISSING, 4)


@pytest.mark.parametrize("scope", [{}, {"newest": 10}])
def test_a_past_that_was_rewritten_contradicts_what_was_signed(five, scope):
    signer.sign()
    Change.objects.filter(position=2).update(after="{}")
    rewrite_from(2)
    assert only(**scope) == (Problem.REWRITTEN, 1)


def test_what_was_exported_before_both_were_rewritten_still_tells(five):
    signer.sign()
    export = list(exported_lines())
    Checkpoint.objects.all().delete()
    Change.objects.filter(position=2).update(after="{}")
    rewrite_from(2)
    problems = [finding.problem for finding in verify(Scope(), export).findings if finding.is_change]
    assert problems == [Problem.REWRITTEN]


def test_the_end_is_signed_once_and_again_when_it_moves(five, tenant):
    signer.sign()
    signer.sign()
    assert Checkpoint.objects.count() == 1
    with recording_as(changes.at_command_line()):
        record(Action.CHANGED, tenant)
    signer.sign()
    assert Checkpoint.objects.count() == 2


def test_the_end_is_signed_anew_every_day_for_old_checkpoints_are_dropped(five, monkeypatch):
    signer.sign()
    monkeypatch.setattr(signer, "CHANGES_AGAIN", signer.CHANGES_AGAIN * 0)
    signer.sign()
    assert Checkpoint.objects.count() == 2
    assert not findings()
