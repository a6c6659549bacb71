"""Users and members in the admin: who can log in, and who can add members."""

import gc
import weakref
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.pages import rows_of
from tools_app.models import Membership, Role
from tools_app.tenants import invitations


def log_in(user: User) -> Any:
    user.set_password("correct horse battery")
    user.save()
    return Client().post("/admin/login/", {"username": user.username, "password": "correct horse battery"})


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor", "stranger"])
def test_members_log_in_without_being_staff(people: Any, role: str) -> None:
    people[role].is_staff = False
    assert log_in(people[role]).status_code == 302


def test_who_belongs_to_no_tenant_is_refused_like_a_wrong_password_even_as_staff(people: Any) -> None:
    people["outsider"].is_staff = True
    refused = log_in(people["outsider"]).content.decode()
    wrong = Client().post("/admin/login/", {"username": "nobody", "password": "wrong"}).content.decode()
    message = "The username or password is incorrect."
    assert message in refused
    assert message in wrong


def test_a_member_who_lost_the_membership_loses_the_admin_at_once(as_: Any, people: Any) -> None:
    client = as_("admin")
    assert client.get("/admin/").status_code == 200
    Membership.objects.filter(user=people["admin"]).delete()
    assert client.get("/admin/").status_code == 302


def test_the_first_page_of_a_member_leads_only_where_it_may_go(as_: Any) -> None:
    text = as_("admin").get("/admin/").content.decode()
    assert "/admin/tools_app/apikey/" in text
    assert "/admin/auth/user/" not in text
    assert "/admin/auth/user/" in as_("superuser").get("/admin/").content.decode()


def test_a_superuser_adds_a_person_by_user_name(as_: Any, page: Any, acme: Any, people: Any) -> None:
    form = {"tenant": acme.tenant.pk, "person": "outsider", "role": "auditor"}
    assert as_("superuser").post(page("membership", "add"), form).status_code == 302
    assert Membership.objects.get(user=people["outsider"]).role == Role.AUDITOR


@pytest.mark.parametrize("name", ["outsider", "nobody-has-this-name"])
def test_an_admin_learns_of_no_account_and_invites_instead(as_: Any, page: Any, acme: Any, name: str) -> None:
    client = as_("admin")
    form = {"tenant": acme.tenant.pk, "person": name, "role": "auditor"}
    responses = [client.get(page("membership", "add")), client.post(page("membership", "add"), form)]
    assert [answer.status_code for answer in responses] == [403, 403]
    listed = client.get(page("membership", "changelist")).content.decode()
    assert page("membership", "invite") in listed
    assert page("membership", "add") not in listed
    body = {"tenant": "acme", "person": name, "role": "auditor"}
    response = client.post("/api/v1/members/", body, content_type="application/json")
    assert (response.status_code, "Invite the person instead" in response.content.decode()) == (403, True)
    assert name not in response.content.decode()
    assert not Membership.objects.filter(user__username=name).exists()


# The e-mail address of an account is not verified.
@pytest.mark.parametrize("text", ["outside", "outsider@example.com", ""])
def test_a_person_who_is_not_named_exactly_is_not_found(as_: Any, page: Any, acme: Any, text: str) -> None:
    before = Membership.objects.count()
    form = {"tenant": acme.tenant.pk, "person": text, "role": "auditor"}
    assert as_("superuser").post(page("membership", "add"), form).status_code == 200
    assert Membership.objects.count() == before


def test_the_page_that_adds_a_member_lists_no_accounts(as_: Any, page: Any) -> None:
    assert "outsider" not in as_("superuser").get(page("membership", "add")).content.decode()


def test_nobody_is_let_into_a_foreign_tenant(as_: Any, page: Any, globex: Any, people: Any) -> None:
    form = {"tenant": globex.tenant.pk, "person": "outsider", "role": "admin"}
    assert as_("admin").post(page("membership", "add"), form).status_code == 403
    assert not Membership.objects.filter(user=people["outsider"]).exists()


def test_a_second_role_in_one_tenant_is_refused(as_: Any, page: Any, acme: Any) -> None:
    form = {"tenant": acme.tenant.pk, "person": "auditor", "role": "admin"}
    assert "is already a member" in as_("superuser").post(page("membership", "add"), form).content.decode()


def test_the_last_admin_can_neither_step_down_nor_leave(as_: Any, page: Any, acme: Any, people: Any) -> None:
    Membership.objects.filter(user=people["teammate"]).delete()
    last = Membership.objects.get(user=people["admin"])
    client = as_("admin")
    assert "last admin" in client.post(page("membership", "change", last), {"role": "auditor"}).content.decode()
    assert client.post(page("membership", "delete", last), {"post": "yes"}).status_code == 403
    last.refresh_from_db()
    assert last.role == Role.ADMIN


def test_all_admins_of_a_tenant_cannot_be_removed_at_once(as_: Any, page: Any, acme: Any) -> None:
    admins = [str(member.pk) for member in acme.tenant.memberships.filter(role=Role.ADMIN)]
    form = {"action": "delete_selected", "_selected_action": admins, "post": "yes"}
    as_("admin").post(page("membership", "changelist"), form)
    assert acme.tenant.memberships.filter(role=Role.ADMIN).count() == 1


def test_a_tenants_admin_changes_its_settings_but_not_what_superusers_decide(as_: Any, page: Any, acme: Any) -> None:
    form = {"name": "New name", "redacted_keys": '["ssn"]', "presentation": "full", "search_above_tokens": "20000"}
    form |= {"slug": "stolen", "allowed_networks": '["10.0.0.0/8"]'}
    assert as_("admin").post(page("tenant", "change", acme.tenant), form).status_code == 302
    acme.tenant.refresh_from_db()
    assert (acme.tenant.name, acme.tenant.redacted_keys) == ("New name", ["ssn"])
    assert (acme.tenant.slug, acme.tenant.is_active, acme.tenant.allowed_networks) == ("acme", True, [])


def test_a_superuser_sees_a_wrong_network_explained(as_: Any, page: Any, acme: Any) -> None:
    form = {"name": "Acme", "is_active": "on", "allowed_networks": "10.0.0.0/8\nmoon", "redacted_keys": "[]"}
    text = as_("superuser").post(page("tenant", "change", acme.tenant), form).content.decode()
    assert "Line 2: moon is no network" in text


def test_a_superuser_deletes_a_tenant_with_its_keys_sessions_and_invitations(
    as_: Any, page: Any, acme: Any, people: Any
) -> None:
    invitations.create(acme.tenant, "ann@example.com", Role.AUDITOR, people["admin"])
    response = as_("superuser").post(page("tenant", "delete", acme.tenant), {"post": "yes"})
    assert response.status_code == 302
    assert not type(acme.tenant).objects.filter(slug="acme").exists()


def test_a_new_member_has_the_least_role_unless_another_is_selected(as_: Any, page: Any, acme: Any) -> None:
    text = as_("superuser").get(page("membership", "add")).content.decode()
    assert '<option value="operator" selected>' in text


def test_pages_use_plain_labels(as_: Any, page: Any, acme: Any, people: Any) -> None:
    client = as_("superuser")
    lists = (
        client.get(page("tenant", "changelist")).content.decode()
        + client.get(page("user", "changelist")).content.decode()
    )
    forms = [
        client.get(address).content.decode()
        for address in (
            page("tenant", "change", acme.tenant),
            page("user", "change", people["teammate"]),
            page("user", "add"),
            "/admin/password_change/",
        )
    ]
    text = lists + "".join(forms)
    for title in ("Tenants | ", "Users | "):
        assert f"<title> {title}mcphub</title>" in lists
    for label in (
        "Is active",
        "Superuser status",
        "Open to everybody",
        "Designates",
        "LDAP",
        "Allow ?api_key=",
        "sake",
        "user options",
    ):
        assert label not in text, label
    for label in ("Active", "Superuser", "Public", "API keys in URLs", "Login with a password"):
        assert label in text, label


@pytest.mark.parametrize(("model", "flag"), [("tenant", "is_active"), ("user", "is_superuser")])
def test_lists_are_filtered_by_a_flag(as_: Any, page: Any, acme: Any, globex: Any, model: str, flag: str) -> None:
    client = as_("superuser")
    type(acme.tenant).objects.filter(slug="globex").update(is_active=False)
    for value in (True, False):
        rows = rows_of(client.get(page(model, "changelist"), {f"{flag}__exact": int(value)}))
        assert rows
        assert {getattr(row, flag) for row in rows} == {value}


def test_the_log_outlives_its_tenant(as_: Any, page: Any, acme: Any) -> None:
    acme.tenant.delete()
    client = as_("superuser")
    assert "(deleted)" in client.get(page("call", "change", acme.call)).content.decode()
    assert client.get(page("call", "changelist")).status_code == 200
    assert client.get(page("runningcall", "change", acme.runningcall)).status_code == 200
    assert client.get(page("runningcall", "changelist")).status_code == 200


def test_requests_are_not_kept_in_memory(as_: Any, page: Any) -> None:
    client = as_("admin")
    first = weakref.ref(client.get(page("membership", "changelist")).wsgi_request)
    # Unfold's pages refer to their last request.
    client.get(page("membership", "changelist"))
    gc.collect()
    assert first() is None
