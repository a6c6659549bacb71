"""Permissions of the REST API, in detail for some endpoints. `test_roles` covers every endpoint."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.rest import Api
from tests.worlds import World
from tools_app.identity import personal_tokens as tokens
from tools_app.models import ApiKey, Change, Membership, Role, Secret, Tenant
from tools_app.tenants.permissions import PERMISSIONS_LOST

SOME_TIME = "2020-01-01T00:00:00Z"
CHANGES = [
    ("PUT", {"tenant": "acme", "name": "acme_token", "value": "other"}),
    ("PATCH", {"value": "other"}),
    ("DELETE", None),
]


@pytest.mark.parametrize(
    ("role", "listed", "read", "made", "changed"),
    [
        ("superuser", 200, 200, 201, (200, 200, 204)),
        ("admin", 200, 200, 201, (200, 200, 204)),
        ("auditor", 200, 200, 403, (403, 403, 403)),
        ("operator", 200, 200, 403, (403, 403, 403)),
        ("stranger", 200, 404, 404, (404, 404, 404)),
        ("outsider", 403, 403, 403, (403, 403, 403)),
        ("anonymous", 401, 401, 401, (401, 401, 401)),
    ],
)
def test_rows_are_read_by_members_and_changed_by_admins(
    as_: Any, acme: World, undone: Any, role: str, listed: int, read: int, made: int, changed: tuple[int, ...]
) -> None:
    api: Api = as_(role)
    row = f"secrets/{acme.secret.pk}/"
    assert api.request("GET", "secrets/").status_code == listed
    response = api.request("GET", row)
    assert response.status_code == read
    assert response.headers["Cache-Control"] == "no-store"
    with undone():
        assert api.request("POST", "secrets/", {"tenant": "acme", "name": "new", "value": "x"}).status_code == made
        assert Secret.objects.filter(tenant=acme.tenant, name="new").exists() is (made == 201)
    for (method, body), expected in zip(CHANGES, changed, strict=True):
        before = Secret.objects.filter(pk=acme.secret.pk).values().first()
        with undone():
            assert (method, api.request(method, row, body).status_code) == (method, expected)
            assert expected < 300 or Secret.objects.filter(pk=acme.secret.pk).values().first() == before


@pytest.mark.parametrize("role", ["auditor", "operator"])
def test_who_may_change_nothing_is_told_so_before_what_is_wrong_with_the_change(as_: Any, role: str) -> None:
    for name in ("secrets", "tools", "keys"):
        response = as_(role).request("POST", f"{name}/", {"nonsense": 1})
        assert (response.status_code, response.json()["detail"]) == (403, "Only admins of this tenant can change this.")


@pytest.mark.parametrize("role", ["auditor", "operator"])
def test_an_admin_elsewhere_only_reads_here(as_: Any, people: dict[str, User], acme: World, role: str) -> None:
    elsewhere = Tenant.objects.create(slug="elsewhere", name="Elsewhere")
    Membership.objects.create(user=people[role], tenant=elsewhere, role="admin")
    api: Api = as_(role)
    assert api.request("GET", f"secrets/{acme.secret.pk}/").status_code == 200
    for method, body in CHANGES:
        assert (method, api.request(method, f"secrets/{acme.secret.pk}/", body).status_code) == (method, 403)
    assert api.request("POST", "secrets/", {"tenant": "acme", "name": "new", "value": "x"}).status_code == 403
    assert api.request("POST", "secrets/", {"tenant": "elsewhere", "name": "new", "value": "x"}).status_code == 201
    assert api.request("POST", "secrets/", {"tenant": "globex", "name": "new", "value": "x"}).status_code == 404
    assert api.request("POST", "secrets/", {"tenant": "nobody", "name": "new", "value": "x"}).status_code == 404
    assert api.request("POST", "secrets/", {"tenant": ["acme"], "name": "new", "value": "x"}).status_code == 400


@pytest.mark.parametrize("role", ["admin", "auditor"])
def test_only_superusers_make_and_delete_tenants(as_: Any, acme: World, role: str) -> None:
    assert as_(role).request("POST", "tenants/", {"slug": "umbrella", "name": "Umbrella"}).status_code == 403
    assert as_(role).request("DELETE", "tenants/acme/").status_code == 403
    assert as_(role).request("GET", "tenants/acme/").status_code == 200
    assert list(Tenant.objects.order_by("slug").values_list("slug", flat=True)) == ["acme", "globex"]
    created = as_("superuser").post("tenants/", {"slug": "umbrella", "name": "Umbrella"})
    assert (created["slug"], created["name"]) == ("umbrella", "Umbrella")


def test_a_row_stays_in_its_tenant(as_: Any, people: dict[str, User], acme: World, globex: World) -> None:
    Membership.objects.create(user=people["admin"], tenant=globex.tenant, role="admin")
    for name, row in {
        "alert-destinations": acme.alertdestination,
        "alert-rules": acme.alertrule,
        "api-sources": acme.apisource,
        "client-policies": acme.clientpolicy,
        "issuers": acme.issuer,
        "keys": acme.apikey,
        "prompts": acme.prompt,
        "resources": acme.resource,
        "scopes": acme.tenantscope,
        "secrets": acme.secret,
        "service-clients": acme.serviceclient,
        "tools": acme.tool,
        "toolsets": acme.toolset,
        "upstreams": acme.upstream,
    }.items():
        problem = as_("admin").patch(f"{name}/{row.pk}/", {"tenant": "globex"}, status=400)
        assert problem["errors"]["tenant"] == ["This cannot be changed. Create another one."], name
        assert as_("admin").patch(f"{name}/{row.pk}/", {"tenant": "acme"})["tenant"] == "acme", name


def test_a_field_that_nobody_knows_is_refused_and_what_is_only_read_is_not_looked_at(as_: Any, acme: World) -> None:
    api: Api = as_("admin")
    problem = api.patch(f"keys/{acme.apikey.pk}/", {"name": "new", "nmae": "new"}, status=400)
    assert list(problem["errors"]) == ["nmae"]
    before = api.get(f"keys/{acme.apikey.pk}/")
    changes = {"prefix": "mcphub_other", "revoked_at": SOME_TIME, "last_used_at": SOME_TIME, "name": "new"}
    after = api.patch(f"keys/{acme.apikey.pk}/", changes)
    assert after == {**before, "name": "new"}


def test_lists_are_narrowed_by_tenant_and_by_text(as_: Any, acme: World, globex: World) -> None:
    api: Api = as_("superuser")
    for query, names in {
        "": {"acme_token", "globex_token"},
        "?tenant=acme": {"acme_token"},
        "?tenant=nobody": set(),
        "?search=GLOBEX": {"globex_token"},
        "?search=token+acme": {"acme_token"},
        "?search=token&tenant=globex": {"globex_token"},
        "?search=nothing": set(),
    }.items():
        assert {row["name"] for row in api.get(f"secrets/{query}")["results"]} == names, query
    for query, status in {"?tenant=" + "a" * 64: 400, "?search=" + "a" * 201: 400, "?nobody=knows": 400}.items():
        assert api.request("GET", f"secrets/{query}").status_code == status, query


def test_a_text_is_looked_for_in_each_of_several_fields(as_: Any, acme: World) -> None:
    api: Api = as_("admin")
    api.patch(f"tools/{acme.tool.pk}/", {"title": "Atlas", "description": "Finds rivers"})
    for text, found in {"atlas": 1, "rivers": 1, "atlas+rivers": 1, acme.tool.name: 1, "atlas+seas": 0}.items():
        assert len(api.get(f"tools/?search={text}")["results"]) == found, text


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("Basic {token}", "The header must be `Authorization: Bearer` and a personal token."),
        ("{token}", "The header must be `Authorization: Bearer` and a personal token."),
        ("Bearer", "unknown, expired or revoked"),
        ("Bearer {token}x", "unknown, expired or revoked"),
        ("Bearer {key}", "API key for MCP clients"),
        ("Bearer  {key} ", "API key for MCP clients"),
        ("Token {token}", "The header must be `Authorization: Bearer` and a personal token."),
    ],
)
def test_what_is_no_personal_token_says_so_even_with_a_session(
    as_: Any, people: dict[str, User], acme: World, header: str, message: str
) -> None:
    token = tokens.issue(people["admin"], "script")[1]
    response = as_("admin").request("GET", "me/", Authorization=header.format(token=token, key=acme.key))
    assert response.status_code == 401
    assert message in response.json()["detail"]
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="mcphub"'


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
def test_a_token_is_taken_in_any_spelling_of_its_scheme(people: dict[str, User], scheme: str) -> None:
    token = tokens.issue(people["auditor"], "script")[1]
    assert Api({"Authorization": f"{scheme} {token}"}).get("me/")["username"] == "auditor"


def test_nobody_sees_or_ends_another_persons_tokens(as_: Any, people: dict[str, User]) -> None:
    row, token = tokens.issue(people["admin"], "private")
    for role in ("superuser", "auditor"):
        api: Api = as_(role)
        assert "private" not in str(api.get("tokens/"))
        assert api.request("GET", f"tokens/{row.pk}/").status_code == 404
        assert api.request("POST", f"tokens/{row.pk}/revoke/").status_code == 404
    assert tokens.find(token)


def test_a_token_has_the_name_and_the_end_that_were_asked_for(as_: Any) -> None:
    api: Api = as_("auditor")
    created = api.post("tokens/", {"name": "laptop", "expires_at": "2040-01-01T00:00:00Z"})
    assert (created["name"], created["expires_at"]) == ("laptop", "2040-01-01T00:00:00Z")
    assert created["token"].startswith(created["prefix"])
    shown = api.get(f"tokens/{created['id']}/")
    assert shown == {name: value for name, value in created.items() if name != "token"}
    assert api.get("tokens/")["results"][0] == shown


# How each person may lose permissions: the model, and what becomes of their row; None if it is deleted.
LOSSES = {
    "demoted": ("admin", Membership, {"role": Role.OPERATOR}),
    "removed": ("admin", Membership, None),
    "deactivated": ("admin", User, {"is_active": False}),
    "superuser demoted": ("superuser", User, {"is_superuser": False}),
    "superuser deactivated": ("superuser", User, {"is_active": False}),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("login", ["session", "token"])
def test_permissions_that_are_lost_while_a_change_waits_do_not_count(
    as_: Any, acme: World, people: dict[str, User], while_waiting: Any, loss: str, login: str
) -> None:
    role, model, values = LOSSES[loss]
    rows = model.objects.filter(**{"pk" if model is User else "user_id": people[role].pk})
    while_waiting(rows.delete if values is None else lambda: rows.update(**values))
    before = ApiKey.objects.count()
    body = as_(role, login).post("keys/", {"tenant": "acme", "name": "late"}, status=403)
    assert body["detail"] == PERMISSIONS_LOST
    assert ApiKey.objects.count() == before


def test_an_admin_who_waits_for_their_own_demotion_cannot_undo_it(
    as_: Any, people: dict[str, User], while_waiting: Any
) -> None:
    rows = Membership.objects.filter(user=people["admin"])
    while_waiting(lambda: rows.update(role=Role.OPERATOR))
    as_("admin").patch(f"members/{rows.get().pk}/", {"role": "admin"}, status=403)
    assert not Change.objects.filter(person_id=people["admin"].pk).exists()


def test_an_admin_may_demote_themselves(as_: Any, acme: World, people: dict[str, User]) -> None:
    mine = Membership.objects.get(user=people["admin"])
    Membership.objects.create(user=people["outsider"], tenant=acme.tenant, role=Role.ADMIN)
    assert as_("admin").patch(f"members/{mine.pk}/", {"role": "operator"})["role"] == "operator"
