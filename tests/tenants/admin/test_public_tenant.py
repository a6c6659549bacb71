"""A public tenant: only superusers can make one, pages mark it, and its callers are anonymous."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.messages import get_messages
from django.utils import timezone

from tests.pages import rows_of
from tools_app.models import Call, Tenant

WARNING = "who knows the URL"


def form_of(tenant: Any, **changes: Any) -> dict[str, Any]:
    form = {
        "slug": tenant.slug,
        "name": tenant.name,
        "is_active": "on",
        "calls_per_minute": "",
        "allowed_networks": "[]",
        "redacted_keys": "[]",
        "is_public": "on",
        "public_tools": '["acme_*", "docs://acme/*"]',
        "public_calls_per_minute": "30",
        "presentation": "full",
        "search_above_tokens": "20000",
    }
    return form | changes


def messages_of(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def opened(tenant: Any) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(is_public=True, public_tools=["acme_*"])


def anonymous_call(tenant: Any, **facts: Any) -> Call:
    now = timezone.now()
    return Call.objects.create(
        tenant=tenant,
        tool_name="acme_find",
        method="tools/call",
        started_at=now,
        finished_at=now,
        duration_us=1,
        outcome="ok",
        writer=uuid4(),
        **facts,
    )


def test_a_superuser_opens_a_tenant_and_is_told_what_that_means(as_: Any, page: Any, acme: Any) -> None:
    response = as_("superuser").post(page("tenant", "change", acme.tenant), form_of(acme.tenant))
    acme.tenant.refresh_from_db()
    assert acme.tenant.is_public
    assert acme.tenant.public_tools == ["acme_*", "docs://acme/*"]
    assert acme.tenant.public_calls_per_minute == 30
    (warning,) = [text for text in messages_of(response) if WARNING in text]
    assert "/t/acme/mcp" in warning
    assert "recorded as anonymous" in warning
    assert warning.endswith("They currently match: acme_find, docs://acme/guide, acme_greet.")


def test_a_tenant_that_stays_closed_is_saved_without_a_warning(as_: Any, page: Any, acme: Any) -> None:
    form = form_of(acme.tenant, is_public="")
    response = as_("superuser").post(page("tenant", "change", acme.tenant), form)
    assert response.status_code == 302
    assert not any(WARNING in text for text in messages_of(response))


def test_a_tenant_may_be_made_open_at_once(as_: Any, page: Any, acme: Any) -> None:
    form = form_of(acme.tenant, slug="initech", name="Initech")
    response = as_("superuser").post(page("tenant", "add"), form)
    assert Tenant.objects.get(slug="initech").is_public
    assert any(text.endswith("They currently match: nothing.") for text in messages_of(response))


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
def test_everybody_who_reads_an_open_tenants_page_sees_that_it_is_open(
    as_: Any, page: Any, acme: Any, role: str
) -> None:
    client, address = as_(role), page("tenant", "change", acme.tenant)
    assert WARNING not in client.get(address).content.decode()
    opened(acme.tenant)
    text = client.get(address).content.decode()
    assert WARNING in text
    assert "acme_find, acme_greet." in text


def test_the_admin_of_a_tenant_cannot_open_it(as_: Any, page: Any, acme: Any) -> None:
    response = as_("admin").post(page("tenant", "change", acme.tenant), form_of(acme.tenant, name="Renamed"))
    assert response.status_code == 302
    acme.tenant.refresh_from_db()
    assert (acme.tenant.name, acme.tenant.is_public, acme.tenant.public_tools) == ("Renamed", False, [])
    assert acme.tenant.public_calls_per_minute == 60


def test_what_is_switched_off_is_open_to_nobody(as_: Any, page: Any, acme: Any) -> None:
    opened(acme.tenant)
    type(acme.tool).objects.update(enabled=False)
    text = as_("superuser").get(page("tenant", "change", acme.tenant)).content.decode()
    assert "acme_greet." in text
    assert "acme_find" not in text


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ('["has space"]', "Line 1: use only characters of a name or URI, and * as the wildcard; or tool="),
        ("echo\nhas space", "Line 2: use only characters"),
        ("[1]", "Enter one per line, or a JSON list of strings."),
    ],
)
def test_a_pattern_that_is_none_is_refused_at_its_field(
    as_: Any, page: Any, acme: Any, patterns: str, message: str
) -> None:
    response = as_("superuser").post(page("tenant", "change", acme.tenant), form_of(acme.tenant, public_tools=patterns))
    found = response.context["adminform"].form.errors
    assert list(found) == ["public_tools"]
    assert message in found["public_tools"][0]


@pytest.mark.parametrize("model", ["call", "session", "runningcall"])
def test_who_came_without_a_key_is_shown_as_anonymous(as_: Any, page: Any, acme: Any, model: str) -> None:
    client, address = as_("auditor"), page(model, "changelist")
    assert ">anonymous<" not in "".join(client.get(address).content.decode().split())
    row = acme.row(model)
    type(row).objects.filter(pk=row.pk).update(api_key=None)
    for shown in (address, page(model, "change", row)):
        assert ">anonymous<" in "".join(client.get(shown).content.decode().split())


def test_a_denial_of_nobodys_tenant_is_not_called_anonymous(as_: Any, page: Any, acme: Any) -> None:
    anonymous_call(None, cause="Unknown key.")
    text = as_("superuser").get(page("call", "changelist"), {"period": "1h"}).content.decode()
    assert ">anonymous<" not in "".join(text.split())


def test_anonymous_calls_are_found_by_the_filter_for_keys(as_: Any, page: Any, acme: Any, globex: Any) -> None:
    mine = anonymous_call(acme.tenant)
    anonymous_call(globex.tenant)
    anonymous_call(None)
    found = rows_of(as_("auditor").get(page("call", "changelist"), {"key": "anonymous"}))
    assert [call.pk for call in found] == [mine.pk]
