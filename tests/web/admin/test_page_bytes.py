"""Lists of the admin read no column without a bound, such as schemas and files, and pages of large rows are short."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.worlds import HTTP_TOOL
from tools_app.catalog.admin import tool_revisions
from tools_app.core.relations import large_columns
from tools_app.models import Change, TenantScope, Tool, ToolRevision, Toolset
from tools_app.web.admin import history
from tools_app.web.admin.scoping import ScopedAdmin
from tools_app.web.admin.site import site

LISTS = [
    model
    for model, admin in site._registry.items()
    if isinstance(admin, ScopedAdmin) and model._meta.model_name != "call"
]

# The fields from which a column of the list is computed.
SHOWN = {TenantScope: {"tool_patterns", "methods"}, Toolset: {"tools"}}


@pytest.mark.slow
@pytest.mark.parametrize("model", LISTS, ids=lambda model: model._meta.model_name)
def test_a_list_reads_no_large_column_that_it_does_not_show(as_: Any, model: Any) -> None:
    table = model._meta.db_table
    admin = site._registry[model]
    hidden = (
        {field.column for field in large_columns(model)} - set(map(str, admin.list_display)) - SHOWN.get(model, set())
    )
    with CaptureQueriesContext(connection) as queries:
        response = as_("superuser").get(reverse(f"admin:tools_app_{model._meta.model_name}_changelist"))
    assert response.status_code == 200
    rows = [query["sql"] for query in queries if f'FROM "{table}"' in query["sql"] and "COUNT(" not in query["sql"]]
    assert rows
    for column in hidden:
        assert not any(f'"{table}"."{column}"' in sql.partition(" FROM ")[0] for sql in rows), column


def test_a_page_of_large_tools_is_small(as_: Any, acme: Any) -> None:
    schema = {"type": "object", "description": "x" * 50_000}
    for number in range(40):
        Tool.objects.create(tenant=acme.tenant, name=f"t{number}", **HTTP_TOOL | {"input_schema": schema})
    assert len(as_("admin").get(reverse("admin:tools_app_tool_changelist")).content) < 500_000


def test_a_history_of_large_changes_lists_the_newest_and_says_that_there_are_more(
    as_: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 10_000)
    for number in range(6):
        Change.objects.create(
            tenant=acme.tenant,
            via="admin",
            action="changed",
            kind="tool",
            object_id=str(acme.tool.pk),
            after=f'{{"description": "{"x" * 4000}"}}',
            position=10**6 + number,
            digest=b"d",
        )
    response = as_("admin").get(reverse("admin:tools_app_tool_history", args=[acme.tool.pk]))
    assert [entry.change.position for entry in response.context["entries"]] == [10**6 + 5, 10**6 + 4]
    assert response.context["has_more"]


def test_large_revisions_are_listed_as_far_as_there_is_room(
    as_: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_revisions, "MAX_BYTES", 10_000)
    for number in range(1, 6):
        definition = {"kind": "http", "description": "x" * 4000}
        ToolRevision.objects.create(tool=acme.tool, number=number, definition=definition, digest="d")
    response = as_("admin").get(reverse("admin:tools_app_tool_show_revisions", args=[acme.tool.pk]))
    assert [one.revision.number for one in response.context["listed"]] == [5, 4]
    assert response.context["has_more"]
