"""A list without rows says what its rows are, and what the person who looks at it can do."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.browsers import browser_of
from tests.worlds import person
from tools_app.models import Role, Tenant
from tools_app.web.admin.site import site

READERS = (Role.AUDITOR, Role.OPERATOR)
# What tells the reader to do something.
ORDERS = re.compile(r"(?:^|\. |, |, or )(?:Add|Describe|Invite|Choose|Name|Create|Enter) ", re.IGNORECASE)
ADDED_BY_ADMINS = (
    "alertdestination",
    "alertrule",
    "apikey",
    "apisource",
    "clientpolicy",
    "invitation",
    "issuer",
    "prompt",
    "resource",
    "secret",
    "serviceclient",
    "tenantscope",
    "tool",
    "toolset",
    "upstream",
)
RECORDS = ("alert", "alertdelivery", "connection", "runningcall", "session", "signinevent")


@pytest.fixture
def library(db: None) -> Tenant:
    return Tenant.objects.create(slug="library", name="Library")


def shown(client: Client, model: str, **query: str) -> str:
    """The words in the place of the rows."""
    text = client.get(reverse(f"admin:tools_app_{model}_changelist"), query).content.decode()
    place = text.partition('<h2 class="font-semibold mb-1 text-important text-xl tracking-tight">')[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", place.partition("</form>")[0])).split())


@pytest.mark.parametrize("role", READERS)
def test_who_may_not_add_a_row_is_told_who_can_and_not_to_add_one(library: Tenant, role: Role) -> None:
    client = browser_of(person("reader", library, role))
    for model in ADDED_BY_ADMINS:
        plural = site.get_model_admin(apps_model(model)).opts.verbose_name_plural
        text = shown(client, model)
        assert text.startswith(f"No {plural} "), model
        assert text.endswith(f"Admins of the tenant can add {plural}."), model
        assert not ORDERS.search(text), text


def test_who_may_add_a_row_is_offered_to(library: Tenant) -> None:
    client = browser_of(person("adder", library, Role.ADMIN))
    for model in ADDED_BY_ADMINS:
        text = shown(client, model)
        assert "Admins of the tenant" not in text, model
        assert f"Add {apps_model(model)._meta.verbose_name}" in text, model
    assert "Describe an HTTP request" in shown(client, "tool")


@pytest.mark.parametrize("role", Role)
def test_records_are_added_by_nobody(library: Tenant, role: Role) -> None:
    client = browser_of(person("reader", library, role))
    for model in RECORDS:
        text = shown(client, model)
        assert text.startswith("No "), model
        assert "can add" not in text, model


def test_a_person_creates_their_own_tokens_in_each_role(library: Tenant) -> None:
    assert "Add personal token" in shown(browser_of(person("reader", library, Role.OPERATOR)), "personaltoken")


@pytest.mark.parametrize(
    ("query", "missed"),
    [
        ({"q": "zzz"}, "search"),
        ({"enabled__exact": "1"}, "filters"),
        ({"q": "zzz", "enabled__exact": "1"}, "search and the filters"),
    ],
)
def test_what_nothing_matches_is_named_and_all_is_one_click_away(
    library: Tenant, query: dict[str, str], missed: str
) -> None:
    text = shown(browser_of(person("reader", library, Role.OPERATOR)), "tool", **query)
    assert text == f"No matches No tools match the {missed}. filter_list_off Show all"


@pytest.mark.parametrize(("role", "advised"), [(Role.ADMIN, True), (Role.AUDITOR, False), (Role.OPERATOR, False)])
def test_only_who_may_add_a_tool_is_advised_to_for_a_first_call(library: Tenant, role: Role, advised: bool) -> None:
    client = browser_of(person("reader", library, role))
    calls = client.get(reverse("admin:tools_app_call_changelist")).content.decode()
    overview = client.get(reverse("admin:index")).content.decode()
    assert ("To record the first call, add a" in calls) == advised
    assert ("Admins of the tenant add" in calls) != advised
    assert "No calls yet" in overview
    assert ("Connect a client with an API key" in overview) == advised


def apps_model(name: str) -> Any:
    return next(model for model in site._registry if model._meta.model_name == name)


def test_every_list_of_a_tenants_rows_is_looked_at() -> None:
    hinted = {model._meta.model_name for model, one in site._registry.items() if getattr(one, "empty_hint", "")}
    others = {"change", "membership", "oauthclient", "personaltoken", "tenant", "upstreamitem"}
    assert hinted - others == {*ADDED_BY_ADMINS, *RECORDS}
