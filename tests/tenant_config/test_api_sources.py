"""API sources and their operations in a tenant's file."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
import yaml

from tests.catalog.openapi.documents import OK, document
from tools_app.catalog import authoring, compiled
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.catalog.kinds.openapi.sources.documents import save_source
from tools_app.catalog.kinds.openapi.sources.plan import apply as apply_document
from tools_app.catalog.kinds.openapi.sources.plan import plan as plan_document
from tools_app.models import ApiSource, Tenant, Tool
from tools_app.tenant_config.document import read
from tools_app.tenant_config.export import export
from tools_app.tenant_config.plan import Plan, StepAction, apply, plan

LIST = {"operationId": "list_books", "summary": "List books", "security": [{"key": []}], **OK}
SCHEMES = {"components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}}}


def refreshed(source: ApiSource, operation: dict[str, Any]) -> None:
    data = orjson.dumps(document({"/books": {"get": operation}}, **SCHEMES))
    revision = documents.read_revision(documents.add_revision(source, data=data).pk)
    assert revision
    source.refresh_from_db()
    apply_document(plan_document(source, revision), enabled={"GET /books"})


@pytest.fixture
def source(tenant: Tenant) -> ApiSource:
    """A source with one tool, whose description was overridden."""
    authoring.set_secret(tenant, "TOKEN", "hush-hush")
    row = ApiSource.objects.create(tenant=tenant, name="books", secrets={"key": "TOKEN"})
    refreshed(row, LIST)
    tool = row.tools.get()
    tool.description = "Ours."
    authoring.save_tool(tool)
    return row


def test_a_file_has_the_source_and_what_is_overridden_and_no_secret(tenant: Tenant, source: ApiSource) -> None:
    text = export(tenant)
    exported = yaml.safe_load(text)

    assert exported["api_sources"]["books"]["secrets"] == {"key": "TOKEN"}
    operation = exported["tools"]["list_books"]["operation"]
    assert (operation["source"], operation["key"], operation["overridden"]) == ("books", "GET /books", ["description"])
    assert "hush-hush" not in text


def test_a_file_has_the_options_of_a_source_and_the_schema_of_a_result(
    tenant: Tenant, source: ApiSource, planned: Any
) -> None:
    responses = {"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "array"}}}}}
    source.cycle_depth, source.output_schemas, source.selection = 2, True, ["/books"]
    refreshed(save_source(source), {**LIST, "responses": responses})
    exported = yaml.safe_load(export(tenant))

    options = {"cycle_depth": 2, "output_schemas": True, "selection": ["/books"]}
    assert {name: exported["api_sources"]["books"][name] for name in options} == options
    assert exported["tools"]["list_books"]["output_schema"]["properties"] == {"result": {"type": "array"}}
    assert planned(export(tenant), prune=True).steps == []
    exported["api_sources"]["books"]["cycle_depth"] = 6
    assert [problem.message for problem in planned(yaml.safe_dump(exported)).problems] == [
        "Ensure this value is less than or equal to 5."
    ]


def test_what_a_tenant_exports_changes_nothing_in_it(tenant: Tenant, source: ApiSource, planned: Any) -> None:
    found = planned(export(tenant), prune=True)

    assert (found.steps, found.problems, found.unchanged) == ([], [], 2)


def test_another_tenant_gets_tools_that_run_and_a_refresh_keeps_what_is_overridden(
    tenant: Tenant, source: ApiSource, other_tenant: Tenant
) -> None:
    found = plan(other_tenant, read(export(tenant)), None)
    assert (found.problems, found.missing_secrets, found.count(StepAction.CREATE)) == (
        [],
        {"TOKEN": ["API source books"]},
        2,
    )
    apply(found)
    other_tenant.refresh_from_db()

    assert list(compiled.of_tenant(other_tenant).tools) == ["list_books"]
    assert plan(other_tenant, read(export(tenant)), None).is_empty
    refreshed(other_tenant.api_sources.get(), {**LIST, "summary": "All books", "description": "Theirs."})
    tool = Tool.objects.get(tenant=other_tenant)
    assert (tool.title, tool.description) == ("All books", "Ours.")


def test_pruning_deletes_a_source_with_its_tools(
    tenant: Tenant, source: ApiSource, applied: Callable[..., Plan]
) -> None:
    applied("mcphub: 1\napi_sources: {}\ntools: {}\n", prune=True)

    assert not Tool.objects.exists()
    assert not ApiSource.objects.exists()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("tools: {a: {operation: {source: none, key: GET /a, method: GET, path: /a}}}", "belong to an API source"),
        ("tools: {a: {operation: {source: books, method: GET, path: a}}}", "must start with a slash"),
        ("tools: {a: {operation: {source: books, method: GET, path: /a, body: {}}}}", "missing required field"),
        ("api_sources: {a: {url: 'ftp://x'}}", "Invalid URL"),
        ("api_sources: {a: {url: '', schemes: {k: {kind: header, name: Host}}}}", "cannot be sent as a header"),
        ("api_sources: {a: {url: '', schemes: {k: {kind: moon, name: x}}}}", "Invalid enum value"),
        ("api_sources: {a: {url: '', servers: [{}]}}", "missing required field"),
    ],
)
def test_what_cannot_run_is_refused(tenant: Tenant, source: ApiSource, planned: Any, body: str, problem: str) -> None:
    found = planned(f"mcphub: 1\n{body}\n")

    assert any(problem in str(one) for one in found.problems), found.problems
