"""Every page of the admin against every role, by its address."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

MOST_QUERIES = 12

WRITABLE = ("membership", "tool", "secret")
RECORDS = ("session", "call", "runningcall")
ALL = ("tenant", "apikey", *WRITABLE, *RECORDS)

OK, LOGIN, FORBIDDEN, MISSING = 200, 302, 403, 404

READS = {"superuser": OK, "admin": OK, "teammate": OK, "auditor": OK, "stranger": MISSING}
WRITES = READS | {"auditor": FORBIDDEN}
SUPERUSER_WRITES = WRITES | {"admin": FORBIDDEN, "teammate": FORBIDDEN}
NOBODY_WRITES = SUPERUSER_WRITES | {"superuser": FORBIDDEN}

DELETES = (
    dict.fromkeys(WRITABLE, WRITES) | {"tenant": SUPERUSER_WRITES} | dict.fromkeys(("apikey", *RECORDS), NOBODY_WRITES)
)
CHANGES = dict.fromkeys((*WRITABLE, "apikey", "tenant"), WRITES) | dict.fromkeys(RECORDS, NOBODY_WRITES)
ADDS = (
    # A stranger adds too, to its own tenant: tests of the forms show that it cannot choose another.
    dict.fromkeys((*WRITABLE, "apikey"), READS | {"auditor": FORBIDDEN, "stranger": OK})
    | {"tenant": dict.fromkeys(READS, FORBIDDEN) | {"superuser": OK}}
    | dict.fromkeys(RECORDS, dict.fromkeys(READS, FORBIDDEN))
)


def cases(table: dict[str, dict[str, int]]) -> list[tuple[str, str, int]]:
    return [(model, role, status) for model, roles in table.items() for role, status in roles.items()]


@pytest.mark.parametrize("view", ["change", "history"])
@pytest.mark.parametrize(("model", "role", "status"), cases(dict.fromkeys(ALL, READS)))
def test_members_read_their_tenants_rows_and_strangers_find_nothing(
    as_: Any, page: Any, acme: Any, view: str, model: str, role: str, status: int
) -> None:
    assert as_(role).get(page(model, view, acme.row(model))).status_code == status


@pytest.mark.parametrize(("model", "role", "status"), cases(DELETES))
def test_the_delete_page_is_for_those_who_may_delete(
    as_: Any, page: Any, acme: Any, model: str, role: str, status: int
) -> None:
    assert as_(role).get(page(model, "delete", acme.row(model))).status_code == status


@pytest.mark.parametrize(("model", "role", "status"), [case for case in cases(DELETES) if case[2] != OK])
def test_a_posted_deletion_is_refused_too(as_: Any, page: Any, acme: Any, model: str, role: str, status: int) -> None:
    row = acme.row(model)
    assert as_(role).post(page(model, "delete", row), {"post": "yes"}).status_code == status
    assert type(row).objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize(("model", "role", "status"), [case for case in cases(CHANGES) if case[2] != OK])
@pytest.mark.parametrize("trick", ["", "_saveasnew", "_popup"])
def test_a_posted_change_is_refused_to_those_who_only_read(
    as_: Any, page: Any, acme: Any, model: str, role: str, status: int, trick: str
) -> None:
    answer = as_(role).post(page(model, "change", acme.row(model)), {trick: "1", "name": "stolen"} if trick else {})
    # Saving as a new row is adding one: a stranger, who may add, gets its own form back with its errors.
    expected = {FORBIDDEN, MISSING, OK} if trick == "_saveasnew" and role == "stranger" else {status}
    assert answer.status_code in expected


@pytest.mark.parametrize(("model", "role", "status"), cases(ADDS))
def test_the_add_page_is_for_those_who_run_a_tenant(as_: Any, page: Any, model: str, role: str, status: int) -> None:
    assert as_(role).get(page(model, "add")).status_code == status
    assert as_(role).get(page(model, "add"), {"_popup": "1"}).status_code == status
    if status == FORBIDDEN:
        assert as_(role).post(page(model, "add"), {}).status_code == FORBIDDEN


@pytest.mark.parametrize("role", ["superuser", "admin", "teammate", "auditor", "stranger"])
@pytest.mark.parametrize("model", ALL)
def test_lists_hold_the_rows_within_reach_only(
    as_: Any, page: Any, acme: Any, globex: Any, model: str, role: str
) -> None:
    answer = as_(role).get(page(model, "changelist"))
    assert answer.status_code == OK
    listed = {row.pk for row in answer.context["cl"].queryset}
    assert (acme.row(model).pk in listed) == (role != "stranger")
    assert (globex.row(model).pk in listed) == (role in {"superuser", "stranger"})


@pytest.mark.parametrize("model", ALL)
def test_no_page_of_a_list_names_another_tenant(as_: Any, page: Any, model: str) -> None:
    text = as_("admin").get(page(model, "changelist")).content.decode().lower()
    assert "globex" not in text


@pytest.mark.parametrize("role", ["outsider", "anonymous"])
@pytest.mark.parametrize("model", [*ALL, "user"])
def test_who_belongs_to_no_tenant_is_sent_to_the_login(
    as_: Any, page: Any, acme: Any, people: Any, model: str, role: str
) -> None:
    row = people["admin"] if model == "user" else acme.row(model)
    addresses = [page(model, "changelist"), page(model, "add")]
    addresses += [page(model, view, row) for view in ("change", "delete", "history")]
    for address in addresses:
        answer = as_(role).get(address)
        assert answer.status_code == LOGIN
        assert answer["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("role", ["admin", "auditor", "stranger"])
@pytest.mark.parametrize("view", ["change", "delete", "history", "changelist", "add"])
def test_accounts_are_for_superusers_only(as_: Any, page: Any, people: Any, view: str, role: str) -> None:
    row = None if view in {"changelist", "add"} else people["superuser"]
    assert as_(role).get(page("user", view, row)).status_code == FORBIDDEN
    assert as_("superuser").get(page("user", view, row)).status_code == OK


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
@pytest.mark.parametrize("model", [*RECORDS, "apikey"])
def test_nobody_deletes_records_by_a_forged_bulk_action(as_: Any, page: Any, acme: Any, model: str, role: str) -> None:
    row = acme.row(model)
    forged = {"action": "delete_selected", "_selected_action": str(row.pk), "post": "yes"}
    as_(role).post(page(model, "changelist"), forged)
    assert type(row).objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize("model", WRITABLE)
@pytest.mark.parametrize("role", ["auditor", "stranger"])
def test_bulk_deletion_leaves_foreign_and_read_only_rows_alone(
    as_: Any, page: Any, acme: Any, model: str, role: str
) -> None:
    row = acme.row(model)
    forged = {"action": "delete_selected", "_selected_action": str(row.pk), "post": "yes"}
    as_(role).post(page(model, "changelist"), forged)
    assert type(row).objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize(("role", "status"), [*WRITES.items(), ("outsider", LOGIN), ("anonymous", LOGIN)])
def test_the_page_that_revokes_a_key_is_for_those_who_run_its_tenant(
    as_: Any, page: Any, acme: Any, role: str, status: int
) -> None:
    address = page("apikey", "revoke_key", acme.apikey)
    assert as_(role).get(address).status_code == status
    if status != OK:
        assert as_(role).post(address).status_code == status
    acme.apikey.refresh_from_db()
    assert acme.apikey.revoked_at is None


@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", OK), ("admin", OK), ("auditor", FORBIDDEN), ("outsider", LOGIN), ("anonymous", LOGIN)],
)
def test_the_page_that_adds_python_tools_is_for_those_who_run_a_tenant(
    as_: Any, page: Any, role: str, status: int
) -> None:
    assert as_(role).get(page("tool", "add_python_tools")).status_code == status


@pytest.mark.parametrize(
    "lookup", ["digest__startswith", "tenant__slug__startswith", "created_by__password__startswith"]
)
def test_a_list_cannot_be_filtered_by_what_it_does_not_offer(as_: Any, page: Any, lookup: str) -> None:
    assert as_("admin").get(page("apikey", "changelist"), {lookup: "a"}).status_code == 400


def test_autocomplete_offers_nothing_of_another_tenant(as_: Any) -> None:
    wanted = {"app_label": "tools_app", "model_name": "apikey", "field_name": "tenant", "term": ""}
    answer = as_("admin").get("/admin/autocomplete/", wanted)
    assert [result["text"] for result in answer.json()["results"]] == ["Acme"]
    wanted |= {"model_name": "membership", "field_name": "user"}
    assert as_("admin").get("/admin/autocomplete/", wanted).status_code == FORBIDDEN


@pytest.mark.parametrize("role", ["superuser", "admin", "auditor"])
@pytest.mark.parametrize("model", [*ALL, "index"])
def test_a_page_asks_the_database_a_few_times_whatever_it_lists(
    as_: Any, page: Any, acme: Any, model: str, role: str
) -> None:
    if model not in {"index", "tenant", "membership"}:
        copies(acme.row(model), 20)
    client = as_(role)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert client.get("/admin/" if model == "index" else page(model, "changelist")).status_code == OK
    asked = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(asked) <= MOST_QUERIES, "\n".join(asked)


def copies(row: Any, number: int) -> None:
    """More rows like this one."""
    model = type(row)
    values = {field.attname: getattr(row, field.attname) for field in model._meta.concrete_fields}
    del values["id"]
    for position in range(number):
        unique = {name: f"{position}{values[name]}"[:60] for name in ("digest", "name") if name in values}
        model.objects.create(**{**values, **unique})
