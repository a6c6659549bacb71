"""The page of a person's own tokens."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User

from tools_app.identity import personal_tokens as tokens
from tools_app.models import PersonalToken

LIST, ADD = "/admin/tools_app/personaltoken/", "/admin/tools_app/personaltoken/add/"


def make(client: Any) -> str:
    response = client.post(ADD, {"name": "laptop", "expires_at_0": "", "expires_at_1": ""}, follow=True)
    assert response.status_code == 200
    assert "no-store" in response.headers["Cache-Control"]
    found = re.search(r"mcphubt_[\w-]{40,}", response.content.decode())
    assert found
    return found[0]


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
def test_a_token_is_made_and_shown_once(as_: Any, role: str) -> None:
    client = as_(role)
    token = make(client)
    assert tokens.find(token) is not None
    listed = client.get(LIST).content.decode()
    assert "laptop" in listed
    assert token not in listed


@pytest.mark.parametrize("role", ["superuser", "teammate", "stranger"])
def test_nobody_sees_or_revokes_another_persons_token(as_: Any, people: dict[str, User], role: str) -> None:
    row, _ = tokens.issue(people["admin"], "private laptop")
    client = as_(role)
    assert "private laptop" not in client.get(LIST).content.decode()
    for page in ("change/", "revoke/", "delete/", "history/"):
        assert client.get(f"{LIST}{row.pk}/{page}").status_code in {403, 404}
        assert client.post(f"{LIST}{row.pk}/{page}").status_code in {403, 404}
    assert tokens.is_valid(PersonalToken.objects.get(pk=row.pk))


@pytest.mark.parametrize("role", ["outsider", "anonymous"])
def test_who_belongs_to_no_tenant_makes_none(as_: Any, role: str) -> None:
    assert as_(role).post(ADD, {"name": "laptop"}).status_code == 302
    assert not PersonalToken.objects.exists()


def test_a_token_is_revoked_once_that_is_confirmed(as_: Any, people: dict[str, User]) -> None:
    row, token = tokens.issue(people["admin"], "laptop")
    client = as_("admin")
    assert client.get(f"{LIST}{row.pk}/change/").status_code == 200
    assert client.get(f"{LIST}{row.pk}/revoke/").status_code == 200
    assert tokens.find(token) is not None
    assert client.post(f"{LIST}{row.pk}/revoke/").status_code == 302
    assert tokens.find(token) is None
    assert client.post(f"{LIST}{row.pk}/change/", {"name": "other"}).status_code == 403
