"""Every page of the admin with every role: see `matrix.py`. Then views that serve several models."""

import logging
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, reverse
from django.utils import timezone

from tests.pages import rows_of
from tests.tenants.admin.matrix import (
    FORBIDDEN,
    INSIDE,
    LOGIN,
    OK,
    PAGES,
    READ,
    ROLES,
    UNASKED,
    WRONG_VERB,
    Page,
    Verb,
)
from tools_app.audit.changes import changes
from tools_app.audit.changes.changes import Actor
from tools_app.catalog.authoring import definition_of
from tools_app.identity import personal_tokens as tokens
from tools_app.models import (
    Action,
    Export,
    ExportFormat,
    OAuthClient,
    Resource,
    ResourceKind,
    Role,
    SavedFilter,
    ToolRevision,
    Via,
)
from tools_app.tenants import invitations, keys
from tools_app.web.admin.site import site

MAX_QUERIES = 12

WRITABLE = ("membership", "tool", "resource", "prompt", "secret", "alertrule", "alertdestination")
RECORDS = ("session", "call", "runningcall", "alert", "alertdelivery")
ALL = ("tenant", "apikey", *WRITABLE, *RECORDS)

REFUSALS = {401, 403, 404, 405}


def routes(patterns: Any) -> Iterator[URLPattern]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns)
        else:
            yield pattern


ADDRESSES: Mapping[str, URLPattern] = {route.name: route for route in routes(site.get_urls()) if route.name}


@pytest.fixture
def world(acme: Any, people: Any) -> Any:
    """A row of acme for every page of a row; it belongs to acme's admin where a row belongs to a user."""
    admin = people["admin"]
    ToolRevision.objects.create(tool=acme.tool, number=1, definition=definition_of(acme.tool), digest="0" * 64)
    replaced, _ = keys.issue(acme.tenant, "old")
    keys.rotate(replaced, timedelta(days=1))
    return SimpleNamespace(
        **{name: getattr(acme, name) for name in acme.__dataclass_fields__},
        membership=acme.membership,
        replaced=replaced,
        blockedclient=OAuthClient.objects.create(client_id="blocked", name="blocked", blocked_at=timezone.now()),
        invitation=invitations.create(acme.tenant, "ann@example.com", Role.AUDITOR, admin)[0],
        personaltoken=tokens.issue(admin, "script")[0],
        filter=SavedFilter.objects.create(person=admin, name="mine", query="outcome=ok"),
        export=Export.objects.create(person=admin, format=ExportFormat.JSONL),
        change=a_change(acme, admin),
        user=people["superuser"],
        file=Resource.objects.create(
            tenant=acme.tenant, uri="docs://acme/file", name="file", kind=ResourceKind.FILE, blob=b"x"
        ),
    )


def a_change(acme: Any, admin: Any) -> Any:
    with transaction.atomic(), changes.recording_as(Actor(admin, Via.ADMIN)):
        return changes.record(Action.CHANGED, acme.tool, before={"title": "a"}, after={"title": "b"})


def address(name: str, page: Page, world: Any) -> str:
    kwargs: dict[str, Any] = {"app_label": "tools_app"} if name == "app_list" else {}
    for word in ADDRESSES[name].pattern.converters:
        kwargs[word] = page.words[word] if word in page.words else getattr(world, page.about).pk
    return reverse(f"admin:{name}", kwargs=kwargs)


def problem(client: Any, url: str, verb: Verb | None, method: str, role: str, world: Any) -> str | None:
    """What is wrong with a response, or None. Its changes are rolled back."""
    with transaction.atomic():
        response = getattr(client, method)(url, verb.sent(world) if verb else {})
        transaction.set_rollback(True)
    status = response.status_code
    if verb is None:
        # Either the login or the method may be checked first.
        is_expected, expected = status in {WRONG_VERB, LOGIN}, WRONG_VERB
    elif (expected := verb.status(role)) == OK:
        is_expected = status < 500 and status not in REFUSALS and not is_login(response)
    elif expected == LOGIN:
        is_expected = is_login(response)
    else:
        is_expected = status == expected
    return None if is_expected else f"{method.upper()} {url}: {status} in place of {expected}"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Disable logging: each refusal would log a traceback."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def is_login(response: Any) -> bool:
    return response.status_code == LOGIN and response["Location"].startswith("/admin/login/")


def test_every_page_has_its_line_in_the_table() -> None:
    assert set(PAGES) == set(ADDRESSES)


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_every_page_answers_each_role_as_the_table_says(as_: Any, world: Any, role: str) -> None:
    client = as_(role)
    client.raise_request_exception = False
    problems = []
    for name, page in PAGES.items():
        # Logging out, or posting a password, ends the session that the next pages need.
        browser = as_(role) if name in {"logout", "login"} else client
        url = address(name, page, world)
        problems += [
            problem(browser, url, verb, method, role, world)
            for method, verb in (("get", page.get), ("post", page.post))
            if verb is not UNASKED
        ]
    found = "\n".join(filter(None, problems))
    assert not found, found


# --- What a table does not say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", INSIDE)
def test_a_row_outlives_every_deletion_that_is_refused(as_: Any, page: Any, acme: Any, role: str) -> None:
    client = as_(role)
    for model in ALL:
        row = acme.row(model)
        if not lets_in(f"tools_app_{model}_delete", role):
            client.post(page(model, "delete", row), {"post": "yes"})
            assert type(row).objects.filter(pk=row.pk).exists(), model


@pytest.mark.slow
def test_every_page_links_to_its_documentation(as_: Any, world: Any) -> None:
    clients = {role: as_(role) for role in ("superuser", "admin")}
    shown, lacking = 0, []
    for name, page in PAGES.items():
        role = next((role for role in clients if page.get and role in page.get.who), None)
        if role is None:
            continue
        with transaction.atomic():
            response = clients[role].get(address(name, page, world))
            transaction.set_rollback(True)
        text = response.content.decode() if response.status_code == OK and not response.streaming else ""
        if "</html>" in text and name != "login":
            shown += 1
            lacking += [] if re.search(r'class="hub-docs" href="/docs/[^"]+"', text) else [name]
    assert lacking == []
    assert shown > 80


@pytest.mark.parametrize("role", ["auditor", "operator", "stranger"])
@pytest.mark.parametrize("trick", ["_saveasnew", "_popup"])
def test_a_change_is_refused_whatever_else_it_says(as_: Any, page: Any, acme: Any, role: str, trick: str) -> None:
    client = as_(role)
    for model in ALL:
        response = client.post(page(model, "change", acme.row(model)), {trick: "1", "name": "stolen"})
        # "Save as new" adds a row: that permission is checked before the row is looked up.
        assert response.status_code in {FORBIDDEN, 404} or (trick == "_saveasnew" and role == "stranger"), model
        row = acme.row(model)
        assert getattr(type(row).objects.get(pk=row.pk), "name", "") != "stolen"


@pytest.mark.parametrize("role", INSIDE)
def test_a_form_in_a_window_of_its_own_is_for_the_same_people(as_: Any, page: Any, role: str) -> None:
    client = as_(role)
    for model in (*WRITABLE, "apikey"):
        status = client.get(page(model, "add"), {"_popup": "1"}).status_code
        assert status == (OK if lets_in(f"tools_app_{model}_add", role) else FORBIDDEN), model


@pytest.mark.parametrize("role", INSIDE)
def test_lists_hold_the_rows_within_reach_only(as_: Any, page: Any, acme: Any, globex: Any, role: str) -> None:
    client = as_(role)
    for model in ALL:
        listed = {row.pk for row in rows_of(client.get(page(model, "changelist")))}
        assert (acme.row(model).pk in listed) == (role in READ), model
        assert (globex.row(model).pk in listed) == (role in {"superuser", "stranger"}), model


def lets_in(name: str, role: str) -> bool:
    verb = PAGES[name].post
    return verb is not None and role in verb.who


def test_no_page_of_a_list_names_another_tenant(as_: Any, page: Any) -> None:
    client = as_("admin")
    assert [m for m in ALL if "globex" in client.get(page(m, "changelist")).content.decode().lower()] == []


@pytest.mark.parametrize(
    ("role", "models"),
    [
        *((role, (*RECORDS, "apikey")) for role in ("superuser", "admin")),
        ("auditor", (*RECORDS, "apikey", *WRITABLE)),
        *((role, WRITABLE) for role in ("operator", "stranger")),
    ],
)
def test_a_forged_bulk_deletion_leaves_records_and_foreign_and_read_only_rows_alone(
    as_: Any, page: Any, acme: Any, role: str, models: tuple[str, ...]
) -> None:
    client = as_(role)
    for model in models:
        row = acme.row(model)
        forged = {"action": "delete_selected", "_selected_action": str(row.pk), "post": "yes"}
        client.post(page(model, "changelist"), forged)
        assert type(row).objects.filter(pk=row.pk).exists(), model


@pytest.mark.parametrize(
    "lookup", ["digest__startswith", "tenant__slug__startswith", "created_by__password__startswith"]
)
def test_a_list_cannot_be_filtered_by_what_it_does_not_offer(as_: Any, page: Any, lookup: str) -> None:
    assert as_("admin").get(page("apikey", "changelist"), {lookup: "a"}).status_code == 400


def test_autocomplete_offers_nothing_of_another_tenant(as_: Any) -> None:
    query = {"app_label": "tools_app", "model_name": "apikey", "field_name": "tenant", "term": ""}
    response = as_("admin").get("/admin/autocomplete/", query)
    assert [result["text"] for result in response.json()["results"]] == ["Acme"]
    query |= {"model_name": "membership", "field_name": "user"}
    assert as_("admin").get("/admin/autocomplete/", query).status_code == FORBIDDEN


@pytest.mark.slow
@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
def test_a_page_asks_the_database_a_few_times_whatever_it_lists(as_: Any, page: Any, acme: Any, role: str) -> None:
    for model in ALL:
        if model not in {"tenant", "membership"}:
            copies(acme.row(model), 20)
    client = as_(role)
    for model in (*ALL, "index"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/admin/" if model == "index" else page(model, "changelist")).status_code == OK
        statements = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
        assert len(statements) <= MAX_QUERIES, "\n".join(statements)


def copies(row: Any, number: int) -> None:
    """Create copies of this row."""
    model = type(row)
    values = {field.attname: getattr(row, field.attname) for field in model._meta.concrete_fields}
    del values["id"]
    for position in range(number):
        unique = {name: f"{values[name][:60]}{position}" for name in ("digest", "name", "uri") if name in values}
        model.objects.create(**{**values, **unique})
