"""Issuers in a tenant's file: preview, import, pruning, and no secrets in exports."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from tools_app.identity.issuers import provider, setup
from tools_app.identity.people import directory, people
from tools_app.models import Directory, Issuer, Membership, Tenant
from tools_app.tenant_config.export import described, export
from tools_app.tenant_config.plan import StepAction

pytestmark = pytest.mark.django_db

FILE = """
mcphub: 1
issuers:
  Staff:
    issuer: https://login.acme.example
    client_id: hub
    rules:
      - {claims: {groups: [admins]}, role: admin}
    recheck_hours: 8
  CI:
    use: workloads
    issuer: https://ci.acme.example
    rules:
      - {claims: {repository: [acme/*]}, names: [report_*]}
"""


def test_a_file_sets_issuers_up_and_says_whose_client_secret_is_missing(
    applied: Any, planned: Any, tenant: Tenant
) -> None:
    found = applied(FILE)
    assert found.problems == []
    assert [(step.doing, step.kind, step.name) for step in found.steps] == [
        (StepAction.CREATE, "issuer", "Staff"),
        (StepAction.CREATE, "issuer", "CI"),
    ]
    assert found.missing_client_secrets == ["Staff"]
    staff = Issuer.objects.get(name="Staff")
    assert (staff.recheck_hours, staff.is_active, staff.directory_claim) == (8, True, "sub")
    assert planned(FILE).is_empty
    assert described(tenant)["issuers"]["CI"] == {
        "use": "workloads",
        "issuer": "https://ci.acme.example",
        "rules": [{"claims": {"repository": ["acme/*"]}, "names": ["report_*"]}],
    }
    assert planned(export(tenant)).is_empty


def test_a_file_has_neither_the_client_secret_nor_the_directorys_token_and_leaves_both(
    applied: Any, tenant: Tenant
) -> None:
    applied(FILE)
    staff = Issuer.objects.get(name="Staff")
    provider.seal_secret(staff, "hush-hush")
    staff.save()
    token = directory.issue(staff)
    written = export(tenant)
    for secret in ("hush-hush", token, Directory.objects.get().digest, bytes(staff.ciphertext or b"").hex()):
        assert secret not in written
    found = applied(FILE.replace("recheck_hours: 8", "recheck_hours: 9"))
    assert found.missing_client_secrets == []
    staff.refresh_from_db()
    assert (staff.recheck_hours, bool(staff.ciphertext)) == (9, True)
    assert directory.find(staff.pk, token) == staff


def test_changed_rules_and_pruned_issuers_count_for_their_people_at_once(applied: Any, tenant: Tenant) -> None:
    applied(FILE)
    identity = people.sign_in(Issuer.objects.get(name="Staff"), {"sub": "u1", "groups": ["admins"]})
    assert Membership.objects.get(user=identity.person).role == "admin"
    applied(FILE.replace("role: admin", "role: operator"))
    assert Membership.objects.get(user=identity.person).role == "operator"
    found = applied("mcphub: 1\nissuers: {}\n", prune=True)
    assert {(step.doing, step.name) for step in found.steps} == {
        (StepAction.DELETE, "Staff"),
        (StepAction.DELETE, "CI"),
    }
    assert not Membership.objects.exists()
    assert User.objects.filter(pk=identity.person_id).exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("Staff: {issuer: 'https://other.example', client_id: hub}", "issuers.Staff.issuer: This cannot be changed"),
        ("New: {issuer: 'https://login.acme.example', client_id: hub}", "issuers.New.issuer: This issuer is set up"),
        ("New: {issuer: 'https://new.example'}", "issuers.New.client_id: Enter the client ID"),
        ("New: {issuer: 'ftp://new.example', client_id: x}", "issuers.New.issuer: "),
        ("New: {client_id: x}", "issuers.New.issuer: This field is required"),
        ("New: {issuer: 'https://new.example', client_id: x, rules: [{}]}", "issuers.New.rules: Each rule for people"),
        ("New: {issuer: 'https://new.example', use: robots}", 'issuers.New.use: "robots" is not a valid choice'),
        (
            "{A: {issuer: 'https://n.example', client_id: x}, B: {issuer: 'https://n.example', client_id: x}}",
            "issuers.B.issuer: Another row",
        ),
    ],
)
def test_what_the_forms_refuse_is_refused_here_too(applied: Any, planned: Any, row: str, message: str) -> None:
    applied(FILE)
    text = row if row.startswith("{") else "{" + row + "}"
    (problem,) = planned(f"mcphub: 1\nissuers: {text}\n").problems
    assert message in str(problem)


def test_two_issuers_of_a_tenant_have_different_names(applied: Any) -> None:
    applied(FILE)
    staff = Issuer.objects.get(name="Staff")
    other = Issuer(tenant=staff.tenant, name="Staff", issuer="https://o.example", client_id="x", is_active=False)
    with pytest.raises(Exception, match="Another issuer has this name"):
        setup.check(other)
