"""SCIM 2.0: users and groups of a company's directory, and the access they get."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tests.identity.sign_in.provider import Provider, issuer_of, running_provider, sign_in
from tests.identity.sign_in.scim import PATCH, USER, ScimClient
from tools_app.identity.issuers import setup
from tools_app.identity.oauth import service_clients, tokens
from tools_app.identity.people import directory, people, provisioning, rules
from tools_app.identity.scim import bounds, entry, resources
from tools_app.models import (
    Change,
    Connection,
    Directory,
    DirectoryUser,
    Identity,
    Issuer,
    Membership,
    Role,
    SignInEvent,
    SignInStep,
    Tenant,
)
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

pytestmark = pytest.mark.slow

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


@pytest.fixture(scope="module")
def company() -> Iterator[Provider]:
    with running_provider() as found:
        yield found


@pytest.fixture
def acme(db: None) -> Tenant:
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def issuer(acme: Tenant, company: Provider) -> Issuer:
    return issuer_of(acme, company.url)


@pytest.fixture
def scim(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> ScimClient:
    monkeypatch.setattr(bounds, "MAX_REQUESTS", 10_000)
    return ScimClient(issuer)


def role_of(name: str) -> str | None:
    return Membership.objects.filter(user__username=name).values_list("role", flat=True).first()


def user_path(row: Any) -> str:
    return f"Users/{row['id']}"


# --- Access ---------------------------------------------------------------------------------------------------------


def test_who_is_provisioned_and_in_a_group_that_a_rule_names_has_its_role_before_they_ever_sign_in(
    scim: ScimClient,
) -> None:
    ann = scim.user("ann@acme.example", name={"givenName": "Ann", "familyName": "Lee"}, externalId="u1")
    assert role_of("ann@acme") is None
    scim.group("mcp-admins", ann)
    person = User.objects.get(username="ann@acme")
    assert (role_of("ann@acme"), person.first_name, person.has_usable_password()) == (Role.ADMIN, "Ann", False)
    change = Change.objects.get(kind="membership")
    assert (change.person_name, change.via, change.tenant) == ("Acme Login", "directory", scim.issuer.tenant)
    assert Change.objects.filter(kind="directorygroup", after__contains="ann@acme.example").exists()


def test_a_group_counts_by_its_external_id_too_and_whatever_groups_a_token_states(
    scim: ScimClient, client: Client, company: Provider
) -> None:
    ann = scim.user("ann", externalId="u1")
    scim.group("Staff of Acme", ann, externalId="staff-7")
    assert role_of("ann@acme") == Role.AUDITOR
    company.set("u1", preferred_username="ann", groups=["mcp-admins"])
    assert sign_in(client, scim.issuer, company, "u1").status_code == 302
    assert [user.username for user in User.objects.all()] == ["ann@acme"]
    assert role_of("ann@acme") == Role.AUDITOR


@pytest.fixture
def ann(scim: ScimClient, client: Client, company: Provider) -> Any:
    """A provisioned admin who signed in and connected a client."""
    row = scim.user("ann", externalId="u1")
    row["group"] = scim.group("mcp-admins", row)
    company.set("u1", preferred_username="ann")
    assert sign_in(client, scim.issuer, company, "u1").status_code == 302
    service, _ = service_clients.create(scim.issuer.tenant, "Editor")
    Connection.objects.filter(pk=service.connection.pk).update(person=User.objects.get(username="ann@acme"))
    tokens.issue_access(Connection.objects.get(), "mcp:read")
    return row


def has_access(client: Client) -> tuple[bool, bool]:
    return client.get("/admin/tools_app/tool/").status_code == 200, tokens.valid_access_tokens().exists()


@pytest.mark.parametrize("how", ["deactivated", "replaced", "deleted", "left the group", "group deleted", "renamed"])
def test_who_leaves_the_directory_or_its_groups_loses_role_admin_session_and_connections_at_once(
    scim: ScimClient, ann: Any, client: Client, how: str
) -> None:
    assert has_access(client) == (True, True)
    group = f"Groups/{ann['group']['id']}"
    match how:
        case "deactivated":
            scim.patch(user_path(ann), {"op": "Replace", "path": "active", "value": "False"})
        case "replaced":
            scim.request("PUT", user_path(ann), {"schemas": [USER], "userName": "ann", "active": False})
        case "deleted":
            assert scim.send("DELETE", user_path(ann)).status_code == 204
            assert scim.send("GET", user_path(ann)).status_code == 404
        case "left the group":
            scim.patch(group, {"op": "remove", "path": f'members[value eq "{ann["id"]}"]'})
        case "group deleted":
            assert scim.send("DELETE", group).status_code == 204
        case "renamed":
            scim.patch(group, {"op": "replace", "value": {"id": ann["group"]["id"], "displayName": "others"}})
    assert role_of("ann@acme") is None
    assert has_access(client) == (False, False)
    left = SignInEvent.objects.get(step=SignInStep.LEFT)
    assert (left.person_name, left.tenant) == ("ann@acme", scim.issuer.tenant)


def test_who_comes_back_into_a_group_gets_the_same_account_and_its_role_back(scim: ScimClient, ann: Any) -> None:
    path = f"Groups/{ann['group']['id']}"
    scim.patch(path, {"op": "Remove", "path": "members", "value": [{"value": ann["id"]}]})
    assert role_of("ann@acme") is None
    scim.patch(path, {"op": "Add", "path": "members", "value": [{"value": ann["id"]}]})
    assert role_of("ann@acme") == Role.ADMIN


def test_nobody_signs_in_whom_the_directory_has_deactivated(
    scim: ScimClient, ann: Any, client: Client, company: Provider
) -> None:
    scim.patch(user_path(ann), {"op": "replace", "value": {"active": False}})
    company.set("u1", groups=["mcp-admins"])
    response = sign_in(Client(), scim.issuer, company, "u1")
    assert "The directory of Acme has deactivated this account. Ask one of its admins." in response.content.decode()
    assert role_of("ann@acme") is None


def test_who_is_deactivated_at_the_moment_of_the_sign_in_gets_nothing(
    scim: ScimClient, ann: Any, company: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    Membership.objects.all().delete()
    set_role = people._set_role

    def slow(identity: Identity, role: str) -> None:
        DirectoryUser.objects.update(active=False)
        set_role(identity, role)

    monkeypatch.setattr(people, "_set_role", slow)
    assert sign_in(Client(), scim.issuer, company, "u1").status_code == 403
    assert role_of("ann@acme") is None


def test_only_people_of_the_directory_sign_in_where_the_tenant_says_so(
    scim: ScimClient, client: Client, company: Provider
) -> None:
    company.set("u7", preferred_username="eve", groups=["mcp-admins"])
    assert sign_in(client, scim.issuer, company, "u7").status_code == 302
    scim.issuer.directory_only = True
    scim.issuer.save()
    setup.apply_changes(scim.issuer)
    assert role_of("eve@acme") is None
    response = sign_in(Client(), scim.issuer, company, "u7")
    assert "The directory of Acme has not provisioned this account." in response.content.decode()


def test_who_signed_in_before_they_were_provisioned_keeps_their_account(
    scim: ScimClient, client: Client, company: Provider
) -> None:
    company.set("u1", preferred_username="ann", groups=["mcp-admins"], oid="o-1")
    sign_in(client, scim.issuer, company, "u1")
    scim.user("ann@acme.example", externalId="u1")
    assert [user.username for user in User.objects.all()] == ["ann@acme"]
    assert role_of("ann@acme") is None
    scim.issuer.directory_claim = "oid"
    scim.issuer.save()
    DirectoryUser.objects.all().delete()
    scim.user("ann@acme.example", externalId="o-1")
    assert DirectoryUser.objects.get().identity.subject == "u1"


def test_an_account_that_was_made_too_early_gives_way_to_the_one_in_use(
    scim: ScimClient, client: Client, company: Provider
) -> None:
    company.set("u1", preferred_username="ann", groups=["mcp-admins"])
    sign_in(client, scim.issuer, company, "u1")
    row = scim.user("ann")
    scim.patch(user_path(row), {"op": "add", "path": "externalId", "value": "u1"})
    assert [user.username for user in User.objects.all()] == ["ann@acme"]
    scim.group("mcp-admins", row)
    assert sign_in(Client(), scim.issuer, company, "u1").status_code == 302
    scim.patch(user_path(row), {"op": "replace", "path": "active", "value": False})
    assert role_of("ann@acme") is None


@pytest.mark.parametrize("moment", ["before", "after"])
def test_who_is_provisioned_during_the_first_sign_in_has_one_account_and_the_directory_decides_about_it(
    scim: ScimClient, client: Client, company: Provider, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The directory provisions before or after the sign-in makes the account, whose claims are not stored yet."""
    Issuer.objects.update(directory_claim="oid")
    create, rows = people.create, []

    def provision() -> None:
        rows.append(scim.user("ann", externalId="o-1"))
        scim.group("mcp-admins", *rows)

    def slow(*args: Any) -> Identity:
        monkeypatch.setattr(people, "create", create)
        if moment == "before":
            provision()
        identity = create(*args)
        if moment == "after":
            provision()
        return identity

    monkeypatch.setattr(people, "create", slow)
    company.set("u1", preferred_username="ann", groups=["mcp-admins"], oid="o-1")
    assert sign_in(client, scim.issuer, company, "u1").status_code == 302
    assert client.get("/admin/tools_app/tool/").status_code == 200
    assert (User.objects.count(), DirectoryUser.objects.get().identity.subject) == (1, "u1")
    scim.patch(user_path(rows[0]), {"op": "replace", "path": "active", "value": False})
    assert not Membership.objects.exists()
    assert client.get("/admin/tools_app/tool/").status_code == 302


def test_a_changed_claim_of_the_external_id_leads_to_the_accounts_in_use(
    scim: ScimClient, client: Client, company: Provider
) -> None:
    company.set("u1", preferred_username="ann", groups=["mcp-admins"], oid="o-1")
    sign_in(client, scim.issuer, company, "u1")
    scim.user("ann", externalId="o-1", active=False)
    assert (User.objects.count(), role_of("ann@acme")) == (2, Role.ADMIN)
    scim.issuer.directory_claim = "oid"
    scim.issuer.save()
    setup.apply_changes(scim.issuer)
    assert (User.objects.count(), role_of("ann@acme")) == (1, None)


def test_an_account_whose_external_id_the_directory_gives_to_another_one_loses_access(
    scim: ScimClient, ann: Any, company: Provider
) -> None:
    company.set("u2", preferred_username="ben", groups=["mcp-admins"])
    sign_in(Client(), scim.issuer, company, "u2")
    scim.patch(user_path(ann), {"op": "replace", "path": "externalId", "value": "u2"})
    assert (role_of("ben@acme"), role_of("ann@acme")) == (None, Role.ADMIN)


def test_a_recheck_finds_the_person_by_the_external_id(scim: ScimClient, client: Client, company: Provider) -> None:
    company.set("u1", preferred_username="ann", groups=["mcp-admins"])
    sign_in(client, scim.issuer, company, "u1")
    row = scim.user("other", active=False)
    DirectoryUser.objects.filter(pk=row["id"]).update(external_id="u1")
    identity = Identity.objects.get(subject="u1")
    with pytest.raises(rules.NoMatchingRule, match="has deactivated"):
        people.confirm(identity, {"sub": "u1", "groups": ["mcp-admins"]}, "", claimed_at=identity.checked_at)


def test_a_group_that_is_renamed_to_the_id_of_another_one_does_not_pass_for_it(scim: ScimClient) -> None:
    ann = scim.user("ann")
    fake = scim.group("staff-7", ann)
    assert role_of("ann@acme") == Role.AUDITOR
    real = scim.group("Staff", externalId="staff-7")
    assert role_of("ann@acme") is None
    scim.patch(f"Groups/{real['id']}", {"op": "replace", "path": "externalId", "value": "staff-8"})
    assert role_of("ann@acme") == Role.AUDITOR
    scim.patch(f"Groups/{real['id']}", {"op": "replace", "path": "externalId", "value": "staff-7"})
    scim.request("DELETE", f"Groups/{real['id']}", status=204)
    assert (role_of("ann@acme"), fake["displayName"]) == (Role.AUDITOR, "staff-7")


def test_any_number_of_people_with_names_in_other_scripts_get_accounts(scim: ScimClient) -> None:
    for number in range(people.TRIES + 2):
        scim.user("山" * (number + 1))
    assert User.objects.filter(username__startswith="person-").count() == people.TRIES + 2 - people.NUMBERED
    scim.user("川", emails=[{"value": "kawa@acme.example"}])
    assert User.objects.filter(username="kawa@acme").exists()


def test_a_group_with_many_members_is_changed_in_parts_of_which_each_is_whole(
    scim: ScimClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning, "PART", 2)
    many = [scim.user(f"p{number}") for number in range(5)]
    group = scim.group("mcp-admins", *many)
    path = f"Groups/{group['id']}"
    assert (len(group["members"]), Membership.objects.count()) == (5, 5)
    assert len(scim.patch(path, {"op": "replace", "path": "displayName", "value": "x"})["members"]) == 5
    assert Membership.objects.count() == 0
    renamed = scim.request("PUT", path, {"schemas": group["schemas"], "displayName": "mcp-admins"})
    assert (len(renamed["members"]), Membership.objects.count()) == (5, 5)
    # Interrupted after the name was stored: repeating the request completes it.
    Membership.objects.all().delete()
    scim.request("PUT", path, {"schemas": group["schemas"], "displayName": "mcp-admins"})
    assert Membership.objects.count() == 5
    scim.request("DELETE", path, status=204)
    assert (Membership.objects.count(), DirectoryUser.objects.count()) == (0, 5)


def test_an_external_id_leads_to_the_account_of_one_subject_only(scim: ScimClient, ann: Any, company: Provider) -> None:
    scim.patch(user_path(ann), {"op": "replace", "path": "externalId", "value": "u2"})
    company.set("u2", preferred_username="ben", groups=["mcp-admins"])
    response = sign_in(Client(), scim.issuer, company, "u2")
    assert "gives your external ID to another account" in response.content.decode()
    assert role_of("ann@acme") == Role.ADMIN


def test_an_account_that_nobody_used_is_deleted_with_its_user(scim: ScimClient) -> None:
    row = scim.user("ann")
    scim.request("DELETE", user_path(row), status=204)
    assert not User.objects.exists()


def test_a_connected_directory_vouches_for_its_people_until_its_token_is_withdrawn(scim: ScimClient, ann: Any) -> None:
    identity = Identity.objects.get()
    later = timezone.now() + timedelta(hours=100)
    assert not people.is_overdue(identity, later)
    Directory.objects.update(last_used_at=timezone.now() - timedelta(days=31))
    assert people.is_overdue(identity, later)
    assert scim.send("GET", "Users").status_code == 200
    assert not people.is_overdue(identity, later)
    directory.withdraw(scim.issuer)
    assert people.is_overdue(identity, later)


def test_changed_rules_count_at_once_for_people_of_the_directory_with_and_without_access(
    scim: ScimClient, company: Provider
) -> None:
    row = scim.user("ann")
    scim.group("finance", row)
    scim.issuer.rules = [{"claims": {"groups": ["finance"]}, "role": "operator"}]
    scim.issuer.save()
    setup.apply_changes(scim.issuer)
    assert role_of("ann@acme") == Role.OPERATOR
    assert setup.try_rules(scim.issuer, company.token("x", groups=["finance"]), "http://hub").rule
    scim.issuer.is_active = False
    scim.issuer.save()
    setup.apply_changes(scim.issuer)
    assert role_of("ann@acme") is None


# --- Who may, and what is out of reach --------------------------------------------------------------------------------


def test_a_token_reaches_no_account_that_is_not_of_its_issuer(scim: ScimClient, acme: Tenant) -> None:
    root = User.objects.create_superuser("root", "root@hub.example")
    local = User.objects.create_user("ann@acme", "ann@acme.example")
    Membership.objects.create(user=local, tenant=acme, role=Role.OPERATOR)
    admins = [
        scim.user("root", externalId="root", emails=[{"value": "root@hub.example", "primary": True}]),
        scim.user("ann@acme", emails=[{"value": "ann@acme.example"}]),
    ]
    scim.group("mcp-admins", *admins)
    assert {name: role_of(name) for name in ("ann@acme", "ann2@acme", "root@acme", "root")} == {
        "ann@acme": Role.OPERATOR,
        "ann2@acme": Role.ADMIN,
        "root@acme": Role.ADMIN,
        "root": None,
    }
    for row in admins:
        scim.send("DELETE", user_path(row))
    assert User.objects.filter(pk__in=[root.pk, local.pk], is_active=True).count() == 2
    assert role_of("ann@acme") == Role.OPERATOR


def test_a_token_reaches_nothing_of_another_issuer_or_tenant(scim: ScimClient, ann: Any) -> None:
    globex = Tenant.objects.create(slug="globex", name="Globex")
    other = Issuer.objects.create(tenant=globex, name="G", issuer="https://g.example", client_id="x", rules=[])
    theirs = ScimClient(other)
    assert ScimClient(other, scim.token).send("GET", "Users").status_code == 401
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        body = {"userName": "x", "Operations": [{"op": "add", "path": "userName", "value": "x"}]}
        schema = PATCH if method == "PATCH" else USER
        assert theirs.send(method, user_path(ann), {"schemas": [schema], **body}).status_code == 404
    refused = theirs.request(
        "POST",
        "Groups",
        {"schemas": [resources.Group.__schema__], "displayName": "g", "members": [{"value": ann["id"]}]},
        400,
    )
    assert refused["scimType"] == "invalidValue"
    assert theirs.request("GET", "Users", filter='userName eq "ann"')["totalResults"] == 0
    theirs.user("ann", externalId="u1")
    assert set(User.objects.values_list("username", flat=True)) == {"ann@acme", "ann@globex"}
    assert role_of("ann@acme") == Role.ADMIN


def test_an_account_with_access_that_its_company_does_not_decide_about_gets_no_more_of_it(scim: ScimClient) -> None:
    row = scim.user("ann", name={"givenName": "Ann"})
    globex = Tenant.objects.create(slug="globex", name="Globex")
    person = User.objects.get()
    Membership.objects.create(user=person, tenant=globex, role=Role.ADMIN)
    group = scim.group("mcp-admins", row)
    assert not Membership.objects.filter(tenant=scim.issuer.tenant).exists()
    scim.patch(user_path(row), {"op": "replace", "value": {"name.givenName": "Eve"}})
    Membership.objects.all().delete()
    User.objects.update(is_superuser=True)
    scim.patch(f"Groups/{group['id']}", {"op": "replace", "path": "members", "value": []})
    scim.patch(f"Groups/{group['id']}", {"op": "replace", "path": "members", "value": [{"value": row["id"]}]})
    person.refresh_from_db()
    assert (person.first_name, Membership.objects.exists()) == ("Ann", False)
    scim.send("DELETE", user_path(row))
    assert User.objects.filter(pk=person.pk).exists()


def test_without_the_token_nothing_is_answered_and_guessing_is_slow(
    scim: ScimClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scim.request("GET", "ServiceProviderConfig")["patch"] == {"supported": True}
    old = scim.token
    scim.token = directory.issue(scim.issuer)
    for token in ("", "x", old, scim.token + "x" * 300):
        response = ScimClient(scim.issuer, token).send("GET", "Users")
        assert (response.status_code, response["WWW-Authenticate"]) == (401, 'Bearer realm="SCIM"')
    assert scim.send("GET", "Users").status_code == 200
    Tenant.objects.update(is_active=False)
    assert scim.send("GET", "Users").status_code == 401
    monkeypatch.setattr(directory, "MAX_FAILURES", 1)
    assert ScimClient(scim.issuer, "x").send("GET", "Users").status_code == 429
    # Unknown tokens are rejected before the look-up, and do not slow down clients with an accepted token.
    Tenant.objects.update(is_active=True)
    monkeypatch.setattr(directory, "MAX_FAILURES", 1000)
    assert scim.send("GET", "Users").status_code == 200
    monkeypatch.setattr(directory, "MAX_FAILURES", 1)
    with CaptureQueriesContext(connection) as queries:
        assert ScimClient(scim.issuer, directory.START + "x").send("GET", "Users").status_code == 429
    assert len(queries) == 0
    assert scim.send("GET", "Users").status_code == 200


def test_a_directory_sends_one_change_at_a_time_and_so_many_requests_a_second(
    scim: ScimClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ConcurrencyLimit("directory", "changes", 1, f"scim:changes:{scim.issuer.pk}")
    limits.acquire_blocking([place], "other", 60)
    refused = scim.send("POST", "Users", {"schemas": [USER], "userName": "ann"})
    assert (refused.status_code, refused["Retry-After"]) == (429, "1")
    assert scim.send("GET", "Users").status_code == 200
    limits.release_of([place.key], "other")
    scim.user("ann")
    scim.user("ben")
    monkeypatch.setattr(bounds, "MAX_REQUESTS", 1)
    refused = scim.send("GET", "Users")
    assert (refused.status_code, refused["Retry-After"]) == (429, "1")


# --- The protocol -----------------------------------------------------------------------------------------------------


def test_a_directory_finds_people_by_name_external_id_id_and_email_page_by_page(scim: ScimClient) -> None:
    mail = {"emails": [{"type": "work", "value": "Ann@Acme.example"}]}
    ann = scim.user("Ann@acme.example", externalId="U1", **mail)
    scim.user("ben@acme.example", emails=[{"type": "home", "value": "ann@acme.example"}])
    cases = {
        'userName eq "ANN@acme.example"': 1,
        'externalId eq "U1"': 1,
        'externalId eq "u1"': 0,
        f'id eq "{ann["id"]}"': 1,
        'id eq "x"': 0,
        'emails.value eq "ann@acme.example"': 2,
        'emails[type eq "work"].value eq "ann@acme.example"': 1,
        'emails[type eq "work" and value eq "ben"]': 0,
        'emails[value eq "ann@acme.example"]': 2,
        'userName eq "ann@acme.example" and active eq true': 1,
        'userName eq "a\\u0000"': 0,
        'userName eq "\\ud800"': 0,
        'id eq "\\ud800"': 0,
        f'{USER}:userName eq "ben@acme.example"': 1,
    }
    assert {text: scim.request("GET", "Users", filter=text)["totalResults"] for text in cases} == cases
    page = scim.request("GET", "Users", startIndex="2", count="1", attributes="userName")
    assert (page["totalResults"], page["itemsPerPage"], page["startIndex"]) == (2, 1, 2)
    assert page["Resources"][0]["userName"] == "ben@acme.example"
    assert "emails" not in page["Resources"][0]
    assert scim.request("POST", "Users/.search", {"filter": 'userName eq "ben@acme.example"'})["totalResults"] == 1
    group = scim.group("g", ann)
    assert "members" not in scim.request("GET", f"Groups/{group['id']}", excludedAttributes="members")
    for text in ('displayName eq "G"', f'members.value eq "{ann["id"]}"', f'members eq "{ann["id"]}"'):
        assert scim.request("GET", "Groups", filter=text)["totalResults"] == 1


def test_a_page_of_groups_ends_before_it_has_too_many_members_and_asks_no_query_for_each(
    scim: ScimClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, ben = scim.user("ann"), scim.user("ben")
    for name in "abc":
        scim.group(name, ann, ben)
    both = " and ".join(f'members.value eq "{one["id"]}"' for one in (ann, ben))
    assert scim.request("GET", "Groups", filter=both)["totalResults"] == 3
    with CaptureQueriesContext(connection) as queries:
        page = scim.request("GET", "Groups", count="1")
    with CaptureQueriesContext(connection) as more_queries:
        assert len(scim.request("GET", "Groups")["Resources"]) == 3
    assert len(queries) == len(more_queries)
    assert {one["value"] for one in page["Resources"][0]["members"]} == {ann["id"], ben["id"]}
    monkeypatch.setattr(bounds, "MAX_PAGE_MEMBERS", 4)
    page = scim.request("GET", "Groups")
    assert (page["totalResults"], page["itemsPerPage"], len(page["Resources"])) == (3, 2, 2)
    assert scim.request("GET", "Groups", startIndex="3")["Resources"][0]["displayName"] == "c"
    assert scim.request("GET", "Groups", excludedAttributes="members")["itemsPerPage"] == 3
    page = scim.request("GET", "Groups", attributes="members.value")
    assert set(page["Resources"][0]["members"][0]) == {"value"}
    page = scim.request("GET", "Groups", excludedAttributes="members.type")
    assert set(page["Resources"][0]["members"][0]) == {"value", "$ref"}


def test_what_entra_and_okta_send_is_understood(scim: ScimClient) -> None:
    resource = {
        "schemas": [USER, ENTERPRISE],
        "userName": "ann@acme.example",
        "active": "True",
        "password": "hush-hush",
        "emails": [{"primary": True, "type": "work", "value": "ann@corp.local"}],
        "roles": [],
        ENTERPRISE: {"department": "Sales"},
    }
    ann = scim.request("POST", "Users", resource, 201)
    assert (ann["active"], "password" in ann) == (True, False)
    changed = scim.patch(
        user_path(ann),
        {"op": "Add", "path": 'emails[type eq "home"].value', "value": "ann@home.example"},
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "lee@corp.local"},
        {"op": "Replace", "path": f"{ENTERPRISE}:department", "value": "Finance"},
        {"op": "replace", "value": {"id": ann["id"], "name.familyName": "Lee", "displayName": "A. Lee"}},
    )
    assert {email["value"] for email in changed["emails"]} == {"lee@corp.local", "ann@home.example"}
    assert (changed["name"]["familyName"], changed["displayName"]) == ("Lee", "A. Lee")
    assert User.objects.get().email == "lee@corp.local"
    group = scim.group("sales", ann)
    path = f"Groups/{group['id']}"
    renamed = scim.request("PUT", path, {"schemas": group["schemas"], "displayName": "Sales"})
    assert [one["value"] for one in renamed["members"]] == [ann["id"]]
    assert "members" not in scim.patch(path, {"op": "replace", "value": {"members": []}})
    assert scim.patch(path, {"op": "add", "value": {"members": [{"value": ann["id"]}]}})["members"]
    assert "members" not in scim.patch(path, {"op": "remove", "path": "members"})
    assert "hush-hush" not in str(list(Change.objects.values())) + str(list(DirectoryUser.objects.values()))


def mails(number: int, first: int = 0) -> list[dict[str, str]]:
    return [{"value": f"{first}-{n}@acme.example"} for n in range(number)]


def test_what_cannot_be_done_is_said_as_an_error_of_the_protocol(scim: ScimClient) -> None:
    ann = scim.user("ann", externalId="u1")
    group = scim.group("g", externalId="g1")
    path, groups = user_path(ann), f"Groups/{group['id']}"
    user = {"schemas": [USER], "userName": "x"}
    add = {"op": "add", "path": "members"}
    many = [{"op": "add", "path": "displayName", "value": "x"}] * (bounds.MAX_OPERATIONS + 1)
    cases: list[tuple[str, str, Any, int, str | None]] = [
        ("POST", "Users", {**user, "userName": "ANN"}, 409, "uniqueness"),
        ("POST", "Users", {**user, "externalId": "u1"}, 409, "uniqueness"),
        ("POST", "Groups", {**group, "externalId": "g1"}, 409, "uniqueness"),
        ("POST", "Users", b"{", 400, "invalidSyntax"),
        ("POST", "Users", [], 400, "invalidSyntax"),
        ("POST", "Users", {**user, "displayName": "a\0"}, 400, "invalidSyntax"),
        ("POST", "Users", b'{"userName": "\\ud800"}', 400, "invalidSyntax"),
        ("POST", "Users", b" " * (directory.MAX_REQUEST_BYTES + 1), 413, None),
        ("POST", "Users", {**user, "userName": " "}, 400, "invalidValue"),
        ("POST", "Users", {**user, "displayName": "x" * bounds.MAX_RESOURCE_BYTES}, 400, "invalidValue"),
        ("POST", "Users", {"schemas": [USER]}, 400, "invalidValue"),
        ("PATCH", path, {"Operations": []}, 400, "invalidValue"),
        ("PATCH", path, {"Operations": ["x"]}, 400, "invalidValue"),
        ("PATCH", path, {"Operations": many}, 400, "invalidValue"),
        ("PATCH", path, {"Operations": [{"op": "boil", "path": "active"}]}, 400, "invalidValue"),
        ("PATCH", path, {"Operations": [{"op": "add", "path": "emails[", "value": 1}]}, 400, "invalidPath"),
        ("PATCH", path, {"Operations": [{"op": "add", "value": {"x" * 301: 1}}]}, 400, "invalidPath"),
        *(
            (
                "PATCH",
                path,
                {"Operations": [{"op": "add", "path": f'emails[type eq "{one}"].value', "value": "x"}]},
                400,
                "invalidPath",
            )
            for one in ("\\u0000", "\\ud800")
        ),
        ("PATCH", path, {"Operations": [{"op": "add", "path": "emails", "value": mails(11)}]}, 400, "invalidValue"),
        ("PATCH", path, {"Operations": [{"op": "add", "value": {"x": [1] * 11}}]}, 400, "invalidValue"),
        (
            "PATCH",
            path,
            {"Operations": [{"op": "add", "path": "emails", "value": mails(n, n)} for n in (4, 7)]},
            400,
            "invalidValue",
        ),
        ("PATCH", path, {"Operations": [{"op": "remove", "path": "userName"}]}, 400, "mutability"),
        ("PATCH", groups, {"Operations": [{**add, "value": [{"value": "x"}]}]}, 400, "invalidValue"),
        ("PATCH", groups, {"Operations": [{**add, "value": [{"value": str(uuid4())}]}]}, 400, "invalidValue"),
        ("PATCH", groups, {"Operations": [{"op": "add", "value": "x"}]}, 400, "invalidValue"),
        ("PATCH", groups, {"Operations": [{"op": "remove", "path": 'members[type eq "x"]'}]}, 400, "invalidPath"),
        (
            "PATCH",
            groups,
            {"Operations": [{"op": "replace", "path": f'members[value eq "{uuid4()}"]', "value": "x"}]},
            400,
            "mutability",
        ),
        ("GET", "Users/x", None, 404, None),
        ("GET", "Devices", None, 404, None),
        ("POST", ".search", {}, 404, None),
        ("GET", "", None, 404, None),
        ("GET", "Schemas/x", None, 404, None),
        ("DELETE", "Users", None, 405, None),
        ("GET", "Users/.search", None, 405, None),
    ]
    for method, target, body, status, scim_type in cases:
        error = scim.request(method, target, body, status)
        assert error["schemas"] == [entry.ERROR], target
        assert (error["status"], error.get("scimType"), bool(error["detail"])) == (str(status), scim_type, True), (
            target,
            error,
        )
    long = " and ".join(['userName eq "x"'] * 40)
    assert len(long) > bounds.MAX_FILTER
    for text in (
        'active eq "true"',
        "x eq 1",
        'userName co "x"',
        "userName",
        'not (userName eq "x")',
        'emails[type eq "x"]',
        long,
    ):
        assert scim.request("GET", "Users", status=400, filter=text)["scimType"] == "invalidFilter"
    for name, value in (("count", "x"), ("startIndex", "9" * 10), ("attributes", "x" * 1001)):
        assert scim.request("GET", "Users", status=400, **{name: value})["scimType"] == "invalidValue"


def test_a_directory_has_bounds(scim: ScimClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, ben = scim.user("ann"), scim.user("ben")
    monkeypatch.setattr(provisioning, "MAX_MEMBERS", 1)
    group = scim.group("g", ann)
    operation = {"op": "add", "path": "members", "value": [{"value": ben["id"]}]}
    assert "at most 1 members" in scim.patch(f"Groups/{group['id']}", operation, status=400)["detail"]
    monkeypatch.setattr(provisioning, "MAX_GROUPS", 1)
    assert "at most 1 groups" in scim.request("POST", "Groups", {**group, "externalId": "2"}, 400)["detail"]
    monkeypatch.setattr(people, "MAX_PEOPLE", 2)
    assert scim.user("eve", status=400)["scimType"] == "invalidValue"
    assert DirectoryUser.objects.count() == 2


# --- Setting up -------------------------------------------------------------------------------------------------------


def test_an_admin_connects_the_directory_sees_its_token_once_and_disconnects_it(
    issuer: Issuer, acme: Tenant, client: Client
) -> None:
    user = User.objects.create_user("boss")
    Membership.objects.create(user=user, tenant=acme, role=Role.ADMIN)
    client.force_login(user)
    page = reverse("admin:tools_app_issuer_change", args=[issuer.pk])
    assert "Not connected." in client.get(page).content.decode()
    create = reverse("admin:tools_app_issuer_directory_token", args=[issuer.pk])
    assert "The token is shown once" in client.get(create).content.decode()
    shown = client.post(create, follow=True).content.decode()
    token = shown.partition(directory.START)[2].partition("<")[0].partition('"')[0].strip()
    scim = ScimClient(issuer, directory.START + token)
    scim.group("mcp-admins", scim.user("ann"))
    assert client.get(reverse("admin:tools_app_issuer_directory_issued", args=[issuer.pk])).status_code == 410
    html = client.get(page).content.decode()
    assert "1 people and 1 groups." in html
    assert scim.token not in html + str(list(Change.objects.values())) + str(Directory.objects.get())
    assert "Acme Login (directory)" in client.get(reverse("admin:tools_app_membership_changelist")).content.decode()
    withdraw = reverse("admin:tools_app_issuer_withdraw_directory", args=[issuer.pk])
    assert client.get(withdraw).status_code == 200
    assert client.post(withdraw).status_code == 302
    assert scim.send("GET", "Users").status_code == 401
    changes = [change.after for change in Change.objects.filter(kind="issuer").order_by("position")]
    assert changes[-2:] == ['{"directory token":"changed"}', '{"directory token":"withdrawn"}']


def test_the_api_connects_a_directory_too(issuer: Issuer, acme: Tenant, client: Client) -> None:
    user = User.objects.create_user("boss")
    Membership.objects.create(user=user, tenant=acme, role=Role.ADMIN)
    client.force_login(user)
    path = f"/api/v1/issuers/{issuer.pk}/"
    connected = client.post(f"{path}directory/").json()
    assert connected["url"] == f"http://testserver/scim/v2/{issuer.pk}"
    assert ScimClient(issuer, connected["token"]).send("GET", "Users").status_code == 200
    state = client.get(path).json()["directory"]
    assert (state["connected"], state["users"], state["token_prefix"]) == (True, 0, connected["token"][:17])
    assert client.delete(f"{path}directory/").status_code == 204
    assert client.delete(f"{path}directory/").status_code == 204
    assert client.get(path).json()["directory"]["connected"] is False
    Issuer.objects.update(use="workloads")
    assert client.post(f"{path}directory/").status_code == 409
