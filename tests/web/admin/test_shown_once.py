"""Pages that show a secret once, after a redirect."""

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session

from tests.tenants.admin.test_keys import shown_key
from tools_app.models import ApiKey, Invitation, PersonalToken
from tools_app.tenants import keys
from tools_app.web.admin import shown_once

FORMS: dict[str, tuple[type[Any], dict[str, str], str]] = {
    "apikey": (ApiKey, {"name": "new", "expires_at_0": "", "expires_at_1": ""}, "apikey/{}/issued/"),
    "personaltoken": (
        PersonalToken,
        {"name": "new", "expires_at_0": "", "expires_at_1": ""},
        "personaltoken/{}/issued/",
    ),
    "invitation": (Invitation, {"email": "new@example.com", "role": "auditor"}, "invitation/{}/link/"),
}


def created(client: Any, page: Any, acme: Any, model: str) -> str:
    """Create a row, and return the URL of the page that shows its secret."""
    kind, form, address = FORMS[model]
    response = client.post(page(model, "add"), form | {"tenant": str(acme.tenant.pk)})
    row = kind.objects.order_by("-created_at").first()
    assert response["Location"] == f"/admin/tools_app/{address.format(row.pk)}"
    return str(response["Location"])


@pytest.mark.parametrize("model", FORMS)
def test_a_reload_makes_no_second_one_and_says_what_to_do(as_: Any, page: Any, acme: Any, model: str) -> None:
    client = as_("admin")
    address = created(client, page, acme, model)
    count = FORMS[model][0].objects.count()
    first, second = client.get(address), client.get(address)
    assert (first.status_code, second.status_code) == (200, 410)
    assert "added successfully" not in first.content.decode()
    assert "If you did not copy it" in second.content.decode()
    assert re.search(r"The (key|token|link) was shown already", second.content.decode())
    assert "no-store" in first["Cache-Control"]
    assert "no-store" in second["Cache-Control"]
    assert FORMS[model][0].objects.count() == count


def test_the_secret_is_in_no_address_and_in_no_session_in_clear(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    address = created(client, page, acme, "apikey")
    waiting = str(Session.objects.get(pk=client.session.session_key).get_decoded())
    key = shown_key(client.get(address))
    assert ApiKey.objects.get(digest=keys.digest_of(key)).name == "new"
    assert key not in waiting
    assert key not in address
    assert shown_once.SESSION_KEY in waiting


def test_a_secret_is_shown_to_nobody_else_and_not_for_ever(
    as_: Any, page: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = as_("admin"), as_("teammate")
    address = created(client, page, acme, "apikey")
    # Not even with the data of the other session.
    session = other.session
    session[shown_once.SESSION_KEY] = client.session[shown_once.SESSION_KEY]
    session.save()
    assert other.get(address).status_code == 410
    monkeypatch.setattr(shown_once.time, "time", lambda: 4e9)
    assert client.get(address).status_code == 410


def test_only_the_newest_secrets_wait(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    addresses = [created(client, page, acme, "apikey") for _ in range(shown_once.MAX_WAITING + 1)]
    assert [client.get(address).status_code for address in (addresses[0], addresses[-1])] == [410, 200]
