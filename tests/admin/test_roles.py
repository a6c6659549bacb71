"""Every page of the admin against every role, by its address."""

from typing import Any, NamedTuple

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

MOST_QUERIES = 12

WRITABLE = ("membership", "tool", "resource", "prompt", "secret")
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


class Case(NamedTuple):
    """What somebody is answered for a page of a model."""

    model: str
    role: str
    status: int


def cases(table: dict[str, dict[str, int]]) -> list[Case]:
    return [Case(model, role, status) for model, roles in table.items() for role, status in roles.items()]


def named(case: object) -> str:
    return "-".join(map(str, case)) if isinstance(case, Case) else str(case)


@pytest.mark.parametrize("view", ["change", "history"])
@pytest.mark.parametrize("case", cases(dict.fromkeys(ALL, READS)), ids=named)
def test_members_read_their_tenants_rows_and_strangers_find_nothing(
    as_: Any, page: Any, acme: Any, view: str, case: Case
) -> None:
    assert as_(case.role).get(page(case.model, view, acme.row(case.model))).status_code == case.status


@pytest.mark.parametrize("case", cases(DELETES), ids=named)
def test_the_delete_page_is_for_those_who_may_delete(as_: Any, page: Any, acme: Any, case: Case) -> None:
    assert as_(case.role).get(page(case.model, "delete", acme.row(case.model))).status_code == case.status


@pytest.mark.parametrize("case", [case for case in cases(DELETES) if case.status != OK], ids=named)
def test_a_posted_deletion_is_refused_too(as_: Any, page: Any, acme: Any, case: Case) -> None:
    row = acme.row(case.model)
    assert as_(case.role).post(page(case.model, "delete", row), {"post": "yes"}).status_code == case.status
    assert type(row).objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize("case", [case for case in cases(CHANGES) if case.status != OK], ids=named)
@pytest.mark.parametrize("trick", ["", "_saveasnew", "_popup"])
def test_a_posted_change_is_refused_to_those_who_only_read(
    as_: Any, page: Any, acme: Any, case: Case, trick: str
) -> None:
    form = {trick: "1", "name": "stolen"} if trick else {}
    answer = as_(case.role).post(page(case.model, "change", acme.row(case.model)), form)
    # Saving as a new row is adding one: that is asked before the row is looked for.
    allowed = {FORBIDDEN, MISSING, OK} if trick == "_saveasnew" and case.role == "stranger" else {case.status}
    assert answer.status_code in allowed
    assert type(acme.row(case.model)).objects.filter(pk=acme.row(case.model).pk).exists()


@pytest.mark.parametrize("case", cases(ADDS), ids=named)
def test_the_add_page_is_for_those_who_run_a_tenant(as_: Any, page: Any, case: Case) -> None:
    client, address = as_(case.role), page(case.model, "add")
    assert client.get(address).status_code == case.status
    assert client.get(address, {"_popup": "1"}).status_code == case.status
    if case.status == FORBIDDEN:
        assert client.post(address, {}).status_code == FORBIDDEN


@pytest.mark.parametrize("case", cases(dict.fromkeys(ALL, dict.fromkeys(READS, OK))), ids=named)
def test_lists_hold_the_rows_within_reach_only(as_: Any, page: Any, acme: Any, globex: Any, case: Case) -> None:
    answer = as_(case.role).get(page(case.model, "changelist"))
    assert answer.status_code == OK
    listed = {row.pk for row in answer.context["cl"].queryset}
    assert (acme.row(case.model).pk in listed) == (case.role != "stranger")
    assert (globex.row(case.model).pk in listed) == (case.role in {"superuser", "stranger"})


@pytest.mark.parametrize("model", ALL)
def test_no_page_of_a_list_names_another_tenant(as_: Any, page: Any, model: str) -> None:
    text = as_("admin").get(page(model, "changelist")).content.decode().lower()
    assert "globex" not in text


@pytest.mark.parametrize("role", ["outsider", "anonymous"])
@pytest.mark.parametrize("model", ALL)
def test_who_belongs_to_no_tenant_is_sent_to_the_login(as_: Any, page: Any, acme: Any, model: str, role: str) -> None:
    row = acme.row(model)
    addresses = [page(model, "changelist"), page(model, "add")]
    addresses += [page(model, view, row) for view in ("change", "delete", "history")]
    for address in addresses:
        answer = as_(role).get(address)
        assert answer.status_code == LOGIN
        assert answer["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("role", ["admin", "auditor", "stranger"])
@pytest.mark.parametrize("view", ["change", "delete", "history", "password_change", "changelist", "add"])
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


@pytest.mark.parametrize("model", ["tool", "resource", "prompt"])
@pytest.mark.parametrize(
    ("role", "status"),
    [("superuser", OK), ("admin", OK), ("auditor", FORBIDDEN), ("outsider", LOGIN), ("anonymous", LOGIN)],
)
def test_the_pages_that_add_what_code_offers_are_for_those_who_run_a_tenant(
    as_: Any, page: Any, model: str, role: str, status: int
) -> None:
    address = page(model, f"add_python_{model}s")
    assert as_(role).get(address).status_code == status
    if status != OK:
        assert as_(role).post(address, {}).status_code == status


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
        unique = {name: f"{values[name][:60]}{position}" for name in ("digest", "name", "uri") if name in values}
        model.objects.create(**{**values, **unique})
