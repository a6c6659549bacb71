"""Authentication of the REST API: sessions with CSRF, and personal tokens."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.rest import ROOT, Api
from tests.worlds import World
from tools_app.identity import personal_tokens as tokens
from tools_app.models import Change, PersonalToken


def bearer(token: str) -> Api:
    return Api({"Authorization": f"Bearer {token}"})


def refused(token: str) -> str:
    response = bearer(token).request("GET", "me/")
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    return str(response.json()["detail"])


def test_a_token_acts_with_the_roles_that_its_person_has_at_that_moment(people: dict[str, User], as_: Any) -> None:
    api = as_("operator", "token")
    assert api.get("me/")["roles"] == [{"tenant": "acme", "role": "operator"}]
    people["operator"].memberships.update(role="admin")
    api.post("secrets/", {"tenant": "acme", "name": "new", "value": "hush"})
    people["operator"].memberships.all().delete()
    assert api.request("GET", "me/").status_code == 403


@pytest.mark.parametrize("spoil", ["revoked", "expired", "inactive", "longer", "of nobody"])
def test_a_token_that_is_no_good_opens_nothing(people: dict[str, User], spoil: str) -> None:
    row, token = tokens.issue(people["admin"], "script")
    moment = timezone.now() - timedelta(seconds=1)
    if spoil == "inactive":
        User.objects.filter(pk=people["admin"].pk).update(is_active=False)
    changes = {"revoked": {"revoked_at": moment}, "expired": {"expires_at": moment}}
    PersonalToken.objects.filter(pk=row.pk).update(**changes.get(spoil, {}))
    carried = {"longer": f"{token}x", "of nobody": f"{tokens.PREFIX}{'x' * 43}"}.get(spoil, token)
    assert "unknown, expired or revoked" in refused(carried)


def test_a_key_of_an_mcp_client_is_told_that_it_is_at_the_wrong_door(acme: World) -> None:
    assert "API key for MCP clients" in refused(acme.key)


def test_the_last_use_of_a_token_is_noted_at_most_once_a_minute(people: dict[str, User]) -> None:
    row, token = tokens.issue(people["admin"], "script")
    bearer(token).get("me/")
    row.refresh_from_db()
    first = row.last_used_at
    assert first is not None
    with CaptureQueriesContext(connection) as queries:
        bearer(token).get("me/")
    assert [query["sql"] for query in queries if "UPDATE" in query["sql"]] == []
    row.refresh_from_db()
    assert row.last_used_at == first
    PersonalToken.objects.filter(pk=row.pk).update(last_used_at=first - timedelta(minutes=1))
    bearer(token).get("me/")
    row.refresh_from_db()
    assert row.last_used_at >= first


def test_a_session_changes_nothing_without_its_csrf_token(people: dict[str, User]) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(people["admin"])
    assert browser.get(f"{ROOT}me/").status_code == 200
    response = browser.post(f"{ROOT}tokens/", {"name": "new"}, content_type="application/json")
    assert response.status_code == 403
    assert "CSRF" in response.json()["detail"]


def test_a_token_is_shown_once_and_never_again(as_: Any) -> None:
    api = as_("auditor")
    created = api.post("tokens/", {"name": "laptop"})
    assert bearer(created["token"]).get("me/")["username"] == "auditor"
    assert created["token"] not in str(api.get("tokens/"))
    api.post(f"tokens/{created['id']}/revoke/", status=200)
    refused(created["token"])


def test_a_token_makes_no_tokens(people: dict[str, User]) -> None:
    api = bearer(tokens.issue(people["admin"], "found")[1])
    assert "cannot create tokens" in api.post("tokens/", {"name": "another"}, status=403)["detail"]
    assert people["admin"].tokens.count() == 1


@pytest.mark.parametrize("login", ["session", "token"])
def test_a_change_is_recorded_as_the_persons_and_as_the_apis(as_: Any, acme: World, login: str) -> None:
    as_("admin", login).patch(f"tools/{acme.tool.pk}/", {"title": "Find"})
    change = Change.objects.filter(kind="tool").latest("position")
    assert (change.person_name, change.via, change.tenant) == ("admin", "api", acme.tenant)
    assert '"Find"' in change.after


def test_who_asks_too_often_is_told_when_to_come_back(as_: Any, settings: Any) -> None:
    settings.MCPHUB_API_REQUESTS_PER_MINUTE = 2
    cache.clear()
    api = as_("admin")
    assert [api.request("GET", "me/").status_code for _ in range(3)] == [200, 200, 429]
    response = api.request("GET", "me/")
    assert 0 < int(response.headers["Retry-After"]) <= 60
    assert response.json()["type"] == "urn:mcphub:problem:throttled"
