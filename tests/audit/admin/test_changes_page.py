"""The page of changes: filters, permissions, and that it is read-only."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tools_app.audit.changes.changes import Actor, record, recording_as
from tools_app.models import Action, Change, Via

LIST = "/admin/tools_app/change/"
PASSWORD = "correct horse battery"
# What the form of a tenant requires beside its name.
SETTINGS = {"presentation": "full", "search_above_tokens": "20000"}


@pytest.fixture
def changed(people: Any, acme: Any, globex: Any) -> dict[str, Change]:
    """A change of each tenant, and one of the whole hub."""
    changes = {}
    with recording_as(Actor(people["admin"], Via.ADMIN, "203.0.113.9")):
        changes["acme"] = record(
            Action.CHANGED, acme.tool, before={"title": "Once a title"}, after={"title": "Now another"}
        )
    with recording_as(Actor(people["stranger"], Via.API, "203.0.113.10")):
        changes["globex"] = record(Action.REVOKED, globex.apikey)
    with recording_as(Actor(people["superuser"], Via.ADMIN)):
        changes["hub"] = record(Action.CREATED, people["outsider"])
    return {name: change for name, change in changes.items() if change is not None}


def page_of(change: Change) -> str:
    return reverse("admin:tools_app_change_change", args=[change.pk])


def names(response: Any) -> set[str]:
    assert response.status_code == 200
    return {change.object_name for change in response.context["cl"].result_list}


def test_what_is_done_in_the_admin_is_recorded_as_that_persons(as_: Any, page: Any, acme: Any, people: Any) -> None:
    form = {**SETTINGS, "name": "Acme Ltd"}
    response = as_("admin").post(page("tenant", "change", acme.tenant), form, REMOTE_ADDR="203.0.113.9")
    assert response.status_code == 302
    change = Change.objects.get()
    assert (change.person_name, change.via, change.remote_address) == ("admin", "admin", "203.0.113.9")
    assert change.after == '{"name":"Acme Ltd"}'


def test_behind_a_trusted_proxy_the_callers_address_is_recorded(as_: Any, page: Any, acme: Any, settings: Any) -> None:
    settings.MCPHUB_TRUSTED_PROXIES = 1
    headers = {"X-Forwarded-For": "198.51.100.1, 203.0.113.77"}
    as_("admin").post(page("tenant", "change", acme.tenant), {**SETTINGS, "name": "A"}, headers=headers)
    assert Change.objects.get().remote_address == "203.0.113.77"


def test_a_login_is_no_change(people: Any, acme: Any, client: Any) -> None:
    people["admin"].set_password(PASSWORD)
    people["admin"].save()
    client.post("/admin/login/", {"username": "admin", "password": PASSWORD})
    assert client.get("/admin/").status_code == 200
    assert not Change.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_ones_own_new_password_is_recorded_without_it(people: Any, acme: Any, as_: Any) -> None:
    people["admin"].set_password(PASSWORD)
    people["admin"].save()
    new = f"{PASSWORD} staple"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert as_("admin").post("/admin/password_change/", form).status_code == 302
    change = Change.objects.get()
    assert (change.kind, change.after, change.tenant_id) == ("user", '{"password":"changed"}', None)


@pytest.mark.django_db(transaction=True)
def test_a_password_that_a_superuser_sets_is_recorded_without_it(people: Any, as_: Any, page: Any) -> None:
    form = {"usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    response = as_("superuser").post(f"/admin/auth/user/{people['admin'].pk}/password/", form)
    assert response.status_code == 302
    assert Change.objects.get().after == '{"password":"changed"}'


@pytest.mark.parametrize(
    ("role", "seen"),
    [
        ("superuser", {"acme_find", "globex", "outsider"}),
        ("admin", {"acme_find"}),
        ("auditor", {"acme_find"}),
        ("operator", {"acme_find"}),
        ("stranger", {"globex"}),
    ],
)
def test_everybody_sees_the_changes_of_their_tenants_and_superusers_those_of_the_hub(
    as_: Any, changed: Any, role: str, seen: set[str]
) -> None:
    assert {name.split(" ")[0] for name in names(as_(role).get(LIST))} == seen


@pytest.mark.parametrize(("role", "which"), [("stranger", "acme"), ("admin", "globex"), ("admin", "hub")])
def test_the_page_of_a_foreign_change_is_missing(as_: Any, changed: Any, role: str, which: str) -> None:
    assert as_(role).get(page_of(changed[which])).status_code == 404


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
def test_the_page_of_a_change_says_both_sides(as_: Any, changed: Any, role: str) -> None:
    text = as_(role).get(page_of(changed["acme"])).content.decode()
    assert "Once a title" in text
    assert "Now another" in text
    assert "203.0.113.9" in text


def test_an_operator_is_told_what_was_changed_but_no_values(as_: Any, changed: Any, acme: Any) -> None:
    history = reverse("admin:tools_app_tool_history", args=[acme.tool.pk])
    for address in (page_of(changed["acme"]), history):
        text = as_("operator").get(address).content.decode()
        assert "acme_find" in text
        assert "Once a title" not in text


@pytest.mark.parametrize("role", ["superuser", "admin"])
def test_nobody_alters_what_was_recorded(as_: Any, changed: Any, role: str) -> None:
    browser, change = as_(role), changed["acme"]
    assert browser.post(page_of(change), {"after": "{}"}).status_code == 403
    assert browser.post(reverse("admin:tools_app_change_delete", args=[change.pk]), {"post": "yes"}).status_code == 403
    assert browser.get(reverse("admin:tools_app_change_add")).status_code == 403


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("person=stranger", {"globex laptop"}),
        ("kind=tool", {"acme_find"}),
        ("action__exact=created", {"outsider"}),
        ("via__exact=api", {"globex laptop"}),
        ("q=find", {"acme_find"}),
        ("at_from_0=2001-01-01&at_to_0=2001-01-02", set()),
        ("person=admin&kind=apikey", set()),
    ],
)
def test_changes_are_found_by(as_: Any, changed: Any, query: str, found: set[str]) -> None:
    assert {name.split(" (")[0] for name in names(as_("superuser").get(f"{LIST}?{query}"))} == found


def test_the_history_of_a_row_is_what_was_changed_of_it(as_: Any, page: Any, changed: Any, acme: Any) -> None:
    response = as_("auditor").get(page("tool", "history", acme.tool))
    assert "Now another" in response.content.decode()
    assert f"{LIST}?object={acme.tool.pk}" in response.content.decode()
    assert names(as_("auditor").get(f"{LIST}?object={acme.tool.pk}")) == {"acme_find"}


def test_a_row_without_history_says_so(as_: Any, page: Any, acme: Any) -> None:
    assert "No recorded changes." in as_("auditor").get(page("prompt", "history", acme.prompt)).content.decode()


def test_markup_in_a_value_is_shown_as_text(as_: Any, acme: Any, people: Any) -> None:
    with recording_as(Actor(people["admin"], Via.ADMIN)):
        change = record(Action.CHANGED, acme.tool, after={"description": "<script>alert(1)</script>\n" * 5})
    assert change is not None
    assert "<script>alert(1)" not in as_("admin").get(page_of(change)).content.decode()


@pytest.mark.parametrize("role", ["superuser", "auditor"])
def test_the_list_asks_the_database_little(as_: Any, changed: Any, role: str) -> None:
    browser = as_(role)
    browser.get(LIST)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert browser.get(LIST).status_code == 200
    assert len(queries) <= 12


def test_the_evidence_page_verifies_the_changes_too(as_: Any, changed: Any) -> None:
    browser = as_("superuser")
    assert "all 3 changes by people" in browser.post("/admin/evidence/").content.decode()
    Change.objects.filter(pk=changed["globex"].pk).update(person_name="eve")
    text = browser.post("/admin/evidence/").content.decode()
    assert "What this change says was altered" in text
    assert page_of(changed["globex"]) in text
