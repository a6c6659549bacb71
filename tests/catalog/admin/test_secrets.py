"""Secrets in the admin: write-only."""

from typing import Any

import pytest

from tools_app.catalog import authoring, versioned
from tools_app.models import Secret


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
def test_no_page_shows_a_secret(as_: Any, page: Any, acme: Any, role: str) -> None:
    client = as_(role)
    addresses = [page("secret", "changelist")]
    addresses += [page("secret", view, acme.secret) for view in ("change", "history", "delete")]
    for address in addresses:
        assert "hush-hush" not in client.get(address).content.decode()


def test_a_value_that_was_typed_is_not_sent_back_with_the_errors_of_other_fields(
    as_: Any, page: Any, acme: Any
) -> None:
    form = {"tenant": acme.tenant.pk, "name": "not a name!", "value": "open-sesame"}
    response = as_("admin").post(page("secret", "add"), form)
    assert response.status_code == 200
    assert "open-sesame" not in response.content.decode()


def test_an_admin_stores_and_replaces_a_value_exactly_as_typed(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    form = {"tenant": acme.tenant.pk, "name": "api_token", "value": " first "}
    assert client.post(page("secret", "add"), form).status_code == 302
    secret = Secret.objects.get(name="api_token")
    assert authoring.decrypt_secret(secret) == " first "
    client.post(page("secret", "change", secret), {"value": "second", "name": "renamed"})
    secret.refresh_from_db()
    assert (secret.name, authoring.decrypt_secret(secret)) == ("api_token", "second")


def test_a_second_secret_of_one_name_is_refused(as_: Any, page: Any, acme: Any) -> None:
    form = {"tenant": acme.tenant.pk, "name": acme.secret.name, "value": "other"}
    assert "already exists" in as_("admin").post(page("secret", "add"), form).content.decode()
    assert authoring.decrypt_secret(Secret.objects.get(pk=acme.secret.pk)) == "acme-hush-hush"


def test_a_secret_of_a_foreign_tenant_cannot_be_stored(as_: Any, page: Any, globex: Any) -> None:
    form = {"tenant": globex.tenant.pk, "name": "planted", "value": "other"}
    assert "Select a valid choice" in as_("admin").post(page("secret", "add"), form).content.decode()
    assert not Secret.objects.filter(name="planted").exists()


def test_a_tenant_has_a_bounded_number_of_them(as_: Any, page: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned, "MAX_ROWS", Secret.objects.filter(tenant=acme.tenant).count())
    client = as_("admin")
    response = client.post(page("secret", "add"), {"tenant": acme.tenant.pk, "name": "one_more", "value": "x"})
    assert "Delete one first." in response.content.decode()
    assert not Secret.objects.filter(name="one_more").exists()
    # An existing one can still be changed.
    assert client.post(page("secret", "change", acme.secret), {"value": "second"}).status_code == 302
