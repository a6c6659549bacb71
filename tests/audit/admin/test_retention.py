"""Retention in the admin: superusers set how long records are kept, and compressed payloads are readable."""

from typing import Any
from uuid import uuid4

import pytest

from tests.audit.aged import days_ago, id_of
from tools_app.audit import retention
from tools_app.core.packing import pack
from tools_app.models import Call, CallPayload, Tenant


def form_of(page_context: Any, **changes: Any) -> dict[str, Any]:
    """The form data of the page's form."""
    form = page_context["adminform"].form
    shown = {name: form[name].value() for name in form.fields}
    return {name: value for name, value in (shown | changes).items() if value not in (None, False)}


def post(browser: Any, address: str, **changes: Any) -> int:
    return browser.post(address, form_of(browser.get(address).context, **changes)).status_code


def test_a_superuser_says_how_long_the_records_of_a_tenant_are_kept(as_: Any, page: Any, acme: Any) -> None:
    assert post(as_("superuser"), page("tenant", "change", acme.tenant), keep_days="90") == 302
    assert Tenant.objects.get(pk=acme.tenant.pk).keep_days == 90


def test_an_admin_of_a_tenant_cannot_shorten_the_evidence_of_what_he_did(as_: Any, page: Any, acme: Any) -> None:
    address = page("tenant", "change", acme.tenant)
    assert post(as_("admin"), address, name="Renamed", keep_days="1") == 302
    tenant = Tenant.objects.get(pk=acme.tenant.pk)
    assert (tenant.name, tenant.keep_days) == ("Renamed", None)
    assert "days to keep calls" in as_("admin").get(address).content.decode().lower()


@pytest.mark.parametrize(("days", "message"), [(0, "Currently: forever."), (90, "Currently: 90 days.")])
def test_the_page_says_how_long_the_hub_keeps_them_otherwise(
    as_: Any, page: Any, acme: Any, settings: Any, days: int, message: str
) -> None:
    settings.MCPHUB_KEEP_DAYS = days
    assert message in as_("superuser").get(page("tenant", "change", acme.tenant)).content.decode()


def test_a_compressed_payload_is_shown_like_any_other(as_: Any, page: Any, acme: Any) -> None:
    packed = pack('{"term": "from afar"}', '{"found": "<b>"}')
    CallPayload.objects.filter(call=acme.call).update(arguments="", result="", packed=packed)
    text = as_("auditor").get(page("call", "change", acme.call)).content.decode()
    assert "from afar" in text
    assert "&lt;b&gt;" in text


def test_a_payload_that_somebody_spoilt_does_not_hide_the_rest_of_the_call(as_: Any, page: Any, acme: Any) -> None:
    CallPayload.objects.filter(call=acme.call).update(arguments="", result="", packed=b"spoilt")
    text = as_("auditor").get(page("call", "change", acme.call)).content.decode()
    assert "Cannot be read: the format is unknown." in text
    assert acme.tool.name in text


# --- What would go -----------------------------------------------------------------------------------------------

TRIAL = "/admin/retention/"


@pytest.fixture
def aged(acme: Any, globex: Any) -> None:
    """Calls of acme, 10, 40 and 100 days old."""
    Call.objects.all().delete()
    for tenant, days in ((acme.tenant, 10), (acme.tenant, 40), (acme.tenant, 100), (globex.tenant, 200)):
        facts = {"duration_us": 1, "outcome": "ok", "writer": uuid4()}
        at = days_ago(days)
        Call.objects.create(id=id_of(at), tenant=tenant, started_at=at, finished_at=at, **facts)


def test_the_page_says_what_would_go_and_deletes_nothing(as_: Any, aged: None, acme: Any) -> None:
    Tenant.objects.filter(pk=acme.tenant.pk).update(keep_days=90)
    client = as_("admin")
    text = client.get(TRIAL).content.decode()
    assert '<strong class="text-important">1 calls</strong>' in text
    assert f"The oldest call is from {days_ago(100):%Y-%m-%d}" in text
    tried = client.get(TRIAL, {"tenant": str(acme.tenant.pk), "keep_days": "30"})
    assert tried.context["trial"].calls == 2
    for days in ("0", "1000"):
        text = client.get(TRIAL, {"tenant": str(acme.tenant.pk), "keep_days": days}).content.decode()
        assert "No calls would be deleted" in text
    assert Call.objects.count() == 4
    assert Tenant.objects.get(pk=acme.tenant.pk).keep_days == 90


def test_what_is_not_counted_is_not_said_to_be(
    as_: Any, aged: None, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_COUNTED", 1)
    text = as_("admin").get(TRIAL, {"keep_days": "30"}).content.decode()
    assert "More than 1 calls" in text


@pytest.mark.parametrize("days", ["-1", "ten", "1e9", "9" * 40])
def test_a_number_of_days_that_is_none_is_refused_with_advice(as_: Any, acme: Any, days: str) -> None:
    response = as_("admin").get(TRIAL, {"keep_days": days})
    assert response.context["trial"] is None
    assert "Enter a whole number of days" in response.content.decode()


def test_who_runs_a_tenant_sees_its_retention_and_no_other(as_: Any, aged: None, acme: Any, globex: Any) -> None:
    foreign = {"tenant": str(globex.tenant.pk)}
    assert as_("admin").get(TRIAL, foreign).status_code == 404
    assert as_("admin").get(TRIAL, {"tenant": "nonsense"}).status_code == 404
    assert "Globex" not in as_("admin").get(TRIAL).content.decode()
    assert as_("auditor").get(TRIAL).status_code == 403
    listed = as_("superuser").get(TRIAL).content.decode()
    assert "Acme" in listed
    assert "Globex" in listed
    assert as_("superuser").get(TRIAL, foreign).context["trial"].oldest.date() == days_ago(200).date()
