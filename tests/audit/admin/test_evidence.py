"""The page that verifies the audit log: who sees which chains, its findings, and its limits."""

from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from tests.audit.chained import change, record
from tools_app.audit.checkpoints import signer, statements, witness
from tools_app.models import Call, CallPayload, Checkpoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("new_chains")]

PAGE, DOWNLOAD = "/admin/evidence/", "/admin/evidence/checkpoints.jsonl"


@pytest.fixture
def calls(acme: Any, globex: Any) -> dict[str, list[UUID]]:
    Call.objects.all().delete()  # they are in no chain
    made = {"acme": record(3, acme.tenant.pk), "globex": record(2, globex.tenant.pk), "none": record(1)}
    signer.sign()
    return made


@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", 200), ("admin", 200), ("auditor", 200), ("stranger", 200), ("outsider", 302), ("anonymous", 302)],
)
@pytest.mark.parametrize("verb", ["get", "post"])
def test_the_page_is_for_those_who_enter(as_: Any, calls: Any, role: str, status: int, verb: str) -> None:
    assert getattr(as_(role), verb)(PAGE).status_code == status


@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", 200), ("admin", 200), ("auditor", 200), ("stranger", 404), ("outsider", 302), ("anonymous", 302)],
)
@pytest.mark.parametrize("verb", ["get", "post"])
def test_a_foreign_tenant_looks_like_none(as_: Any, acme: Any, calls: Any, role: str, status: int, verb: str) -> None:
    assert getattr(as_(role), verb)(f"{PAGE}?tenant={acme.tenant.pk}").status_code == status
    if status == 404:
        assert getattr(as_(role), verb)(f"{PAGE}?tenant={UUID(int=1)}").status_code == 404
        assert getattr(as_(role), verb)(f"{PAGE}?tenant=acme").status_code == 404


@pytest.mark.parametrize(
    ("role", "status"), [("superuser", 200), ("admin", 403), ("auditor", 403), ("outsider", 302), ("anonymous", 302)]
)
def test_checkpoints_of_all_tenants_are_for_superusers(as_: Any, calls: Any, role: str, status: int) -> None:
    response = as_(role).get(DOWNLOAD)
    assert response.status_code == status
    if status == 200:
        assert response.content.count(b"\n") == Checkpoint.objects.count() == 1
        assert response["Content-Disposition"] == 'attachment; filename="checkpoints.jsonl"'
    assert as_(role).post(DOWNLOAD).status_code == (302 if status == 302 else 405)


def test_it_tells_how_the_log_is_signed(as_: Any, calls: Any) -> None:
    text = as_("auditor").get(PAGE).content.decode()
    assert statements.own_key() in text
    assert statements.fingerprint(statements.own_key()) in text
    assert "Download" not in text


@pytest.mark.parametrize(("role", "records", "chains"), [("superuser", 6, 3), ("auditor", 3, 1), ("stranger", 2, 1)])
def test_each_looks_at_what_is_in_reach(as_: Any, calls: Any, role: str, records: int, chains: int) -> None:
    report = as_(role).post(PAGE).context["report"]
    assert (report.records, report.chains, report.findings) == (records, chains, [])


def test_a_superuser_may_look_at_one_tenant(as_: Any, calls: Any, globex: Any) -> None:
    assert as_("superuser").post(f"{PAGE}?tenant={globex.tenant.pk}").context["report"].records == 2


def test_the_first_bad_record_is_named_with_a_link(as_: Any, calls: Any) -> None:
    bad = calls["acme"][1]
    change(bad, cause="another")
    text = as_("auditor").post(PAGE).content.decode()
    assert "Verification failed" in text
    assert reverse("admin:tools_app_call_change", args=[bad]) in text
    assert "No problems found" in as_("stranger").post(PAGE).content.decode()


def test_what_is_wrong_with_a_foreign_tenant_is_not_told(as_: Any, calls: Any) -> None:
    bad = calls["globex"][0]
    change(bad, cause="another")
    assert str(bad) not in as_("auditor").post(PAGE).content.decode()
    assert str(bad) in as_("superuser").post(PAGE).content.decode()


def test_it_says_what_it_did_not_look_at(as_: Any, calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.audit.admin.verification.NEWEST", 2)
    change(calls["acme"][0], cause="another")
    text = as_("auditor").post(PAGE).content.decode()
    assert "the newest 2 records in 1 chains" in text
    assert "Not verified: older records" in text
    assert "python manage.py verify_audit" in text


def test_it_says_when_its_time_was_up(as_: Any, calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.audit.admin.verification.SECONDS", 0.0)
    assert "The time limit was reached" in as_("auditor").post(PAGE).content.decode()


def test_it_tells_whether_the_database_agrees_with_the_witness_file(as_: Any, calls: Any) -> None:
    text = as_("superuser").post(PAGE).content.decode()
    assert "The 1 checkpoints in audit.heads, outside the database, were compared with it." in text
    assert "No problems found" in text


def test_an_end_that_was_cut_off_with_its_checkpoints_is_told_to_those_whose_records_are_missing(
    as_: Any, calls: Any
) -> None:
    CallPayload.objects.filter(pk__in=calls["acme"]).delete()
    Call.objects.filter(pk__in=calls["acme"]).delete()
    Checkpoint.objects.all().delete()
    findings = {role: as_(role).post(PAGE).context["report"].findings for role in ("superuser", "auditor", "stranger")}
    assert "3 records and 0 changes of 1 processes are missing" in findings["superuser"][0].message
    assert "3 records and 0 changes of 1 processes are missing" in findings["auditor"][0].message
    assert not any("records and" in finding.message for finding in findings["stranger"]), "nothing of another tenant's"


@pytest.mark.parametrize(("spoil", "message"), [("unlink", "has no checkpoints"), ("mkdir", "cannot be read")])
def test_it_says_that_there_is_nothing_to_compare_with(as_: Any, calls: Any, spoil: str, message: str) -> None:
    witness.path().unlink()
    if spoil == "mkdir":
        witness.path().mkdir()
    try:
        assert f"audit.heads {message}" in as_("superuser").post(PAGE).content.decode()
    finally:
        if spoil == "mkdir":
            witness.path().rmdir()


def test_who_is_in_several_tenants_chooses_one(as_: Any, people: Any, calls: Any, globex: Any) -> None:
    globex.tenant.memberships.create(user=people["auditor"], role="auditor")
    client = as_("auditor")
    assert "Select a tenant." in client.get(PAGE).content.decode()
    assert client.post(PAGE).context["report"] is None
    assert client.post(f"{PAGE}?tenant={globex.tenant.pk}").context["report"].records == 2


def test_verifying_needs_the_forms_token(people: Any, calls: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["superuser"])
    assert client.post(PAGE).status_code == 403


def test_the_sidebar_leads_there(as_: Any, calls: Any) -> None:
    assert f'href="{PAGE}"' in as_("auditor").get("/admin/").content.decode()
