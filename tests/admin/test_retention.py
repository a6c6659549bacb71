"""In the admin: superusers say how long records are kept, and a compressed payload reads like any other."""

from typing import Any

import pytest

from tools_app.models import CallPayload, Tenant
from tools_app.models.packing import pack


def form_of(page_context: Any, **changes: Any) -> dict[str, Any]:
    """What a browser sends of the page's form."""
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
    assert "keep records for days" in as_("admin").get(address).content.decode().lower()


@pytest.mark.parametrize(("days", "said"), [(0, "now for ever."), (90, "now for 90 days.")])
def test_the_page_says_how_long_the_hub_keeps_them_otherwise(
    as_: Any, page: Any, acme: Any, settings: Any, days: int, said: str
) -> None:
    settings.MCPHUB_KEEP_DAYS = days
    assert said in as_("superuser").get(page("tenant", "change", acme.tenant)).content.decode()


def test_a_compressed_payload_is_shown_like_any_other(as_: Any, page: Any, acme: Any) -> None:
    packed = pack('{"term": "from afar"}', '{"found": "<b>"}')
    CallPayload.objects.filter(call=acme.call).update(arguments="", result="", packed=packed)
    text = as_("auditor").get(page("call", "change", acme.call)).content.decode()
    assert "from afar" in text
    assert "&lt;b&gt;" in text


def test_a_payload_that_somebody_spoilt_does_not_hide_the_rest_of_the_call(as_: Any, page: Any, acme: Any) -> None:
    CallPayload.objects.filter(call=acme.call).update(arguments="", result="", packed=b"spoilt")
    text = as_("auditor").get(page("call", "change", acme.call)).content.decode()
    assert "Not readable: the format is unknown." in text
    assert acme.tool.name in text
