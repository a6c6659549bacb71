"""The command `import_openapi`: first and repeated imports, and overridden values."""

import asyncio
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.catalog.openapi.documents import OK, document, get, post
from tests.web_services import Service, context, http_response, serve
from tools_app.audit.verification.changes import verify_changes
from tools_app.audit.verification.report import Report
from tools_app.catalog import authoring, compiled
from tools_app.catalog.kinds.openapi.documents.schemas import ANY_SCHEMA
from tools_app.catalog.tool_api.results import ToolResult
from tools_app.models import ApiSource, Change, Tenant, Tool

__all__ = ["context", "serve"]
pytestmark = pytest.mark.django_db

LIST = {"operationId": "books/list", "summary": "List books", **OK}
PATHS = {
    "/books": {"get": LIST, **post({"properties": {"title": {"type": "string"}}, "required": ["title"]})},
    "/books/{id}": {"delete": {"operationId": "books/delete", **OK}},
    "/broken": get({"$ref": "#/nowhere"}),
}


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    def write(paths: dict[str, Any] = PATHS, **more: Any) -> str:
        path = tmp_path / "openapi.json"
        path.write_text(json.dumps(document(paths, **more)))
        return str(path)

    return write


def imported(file: str, *options: str) -> list[str]:
    out = StringIO()
    call_command("import_openapi", file, "--tenant", "acme", "--name", "books", *options, stdout=out)
    return out.getvalue().splitlines()


DEFS = {"$ref": "#/$defs/Node"}
SKIPPED = "! GET /broken: '#/nowhere' is not in the document. (#/paths/~1broken/get/parameters/0)"


def test_all_operations_become_disabled_tools(tenant: Tenant, file: Callable[..., str]) -> None:
    lines = imported(file())

    assert lines == [
        "+ books_list GET /books",
        "+ write POST /books",
        "+ books_delete DELETE /books/{id}",
        SKIPPED,
        "3 imported, 1 skipped",
    ]
    assert set(Tool.objects.values_list("enabled", "revision", "kind")) == {(False, 1, "operation")}
    assert Tool.objects.get(name="books_delete").annotations["destructiveHint"] is True


def test_the_second_run_changes_nothing(tenant: Tenant, file: Callable[..., str]) -> None:
    imported(file())
    before = list(Tool.objects.order_by("name").values())
    changes = Change.objects.count()

    assert imported(file())[-2:] == ["0 changed, 0 removed, 3 unchanged", "0 imported, 1 skipped"]
    assert list(Tool.objects.order_by("name").values()) == before
    assert Change.objects.count() == changes


def test_include_imports_what_matches_the_name_or_the_id_enabled(tenant: Tenant, file: Callable[..., str]) -> None:
    lines = imported(file(), "--include", "books_l*", "--include", "books/del*")

    assert lines[-1] == "2 imported, 1 skipped"
    assert list(Tool.objects.values_list("name", "enabled")) == [("books_delete", True), ("books_list", True)]


@pytest.mark.parametrize(
    ("pattern", "found"), [("/books/*", 1), ("/books*", 3), ("GET /books*", 1), ("* /books", 2), ("books", 0)]
)
def test_include_knows_paths_and_methods_with_paths(
    tenant: Tenant, file: Callable[..., str], pattern: str, found: int
) -> None:
    lines = imported(file(), "--include", pattern)
    assert sum(line.startswith("+ ") for line in lines) == found


def test_include_enables_what_an_earlier_run_imported_but_not_what_somebody_disabled(
    tenant: Tenant, file: Callable[..., str]
) -> None:
    imported(file())

    assert "~ books_list GET /books: enabled" in imported(file(), "--include", "books_list")
    authoring.set_enabled(Tool.objects.get(name="books_list"), False)
    assert imported(file(), "--include", "books_list")[-2:] == [
        "0 changed, 0 removed, 3 unchanged",
        "0 imported, 1 skipped",
    ]
    assert not Tool.objects.get(name="books_list").enabled


def test_a_dry_run_says_the_same_and_changes_nothing(tenant: Tenant, file: Callable[..., str]) -> None:
    lines = imported(file(), "--dry-run")

    assert not Tool.objects.exists()
    assert not ApiSource.objects.exists()
    assert lines == imported(file())
    changed = {**PATHS, "/books": {"get": {**LIST, "summary": "List all"}}}
    assert "~ books_list GET /books: title, description" in imported(file(changed), "--dry-run")
    assert Tool.objects.get(name="books_list").title == "List books"


def test_a_refresh_keeps_what_was_overridden_and_renews_the_rest(tenant: Tenant, file: Callable[..., str]) -> None:
    imported(file(), "--include", "*")
    tool = Tool.objects.get(name="books_list")
    tool.description = "Ours."
    authoring.save_tool(tool)
    changed = {"operationId": "renamed", "summary": "All books", "parameters": [{"in": "query", "name": "page"}], **OK}
    paths = {"/books": {"get": changed}, "/new": {"get": OK}}

    assert imported(file(paths)) == [
        "+ get_new GET /new",
        "~ books_list GET /books: title, input_schema, config, description (overridden, kept)",
        "- books_delete DELETE /books/{id}: not in the document, disabled",
        "- write POST /books: not in the document, disabled",
        "1 changed, 2 removed, 0 unchanged",
        "1 imported, 0 skipped",
    ]
    tool.refresh_from_db()
    assert (tool.title, tool.description, tool.enabled) == ("All books", "Ours.", True)
    assert list(tool.input_schema["properties"]) == ["page"]
    assert imported(file(paths))[-2:] == ["0 changed, 0 removed, 2 unchanged", "0 imported, 0 skipped"]


def test_options_change_the_schemas_of_the_same_document_and_stay(tenant: Tenant, file: Callable[..., str]) -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    ref = {"$ref": "#/components/schemas/Node"}
    responses = {"responses": {"200": {"description": "OK", "content": {"application/json": {"schema": ref}}}}}
    path = file({"/books": {"post": {**post(ref)["post"], **responses}}}, components={"schemas": {"Node": node}})
    imported(path)
    tool = Tool.objects.get()
    assert (tool.output_schema, tool.input_schema["$defs"]["Node"]) == (None, {**node, "properties": {"next": DEFS}})

    assert "~ write POST /books: input_schema, output_schema" in imported(
        path, "--output-schemas", "--cycle-depth", "1"
    )
    tool.refresh_from_db()
    cut = {**node, "properties": {"next": {"description": ANY_SCHEMA}}}
    assert tool.input_schema["$defs"] == {"Node": cut}
    assert tool.output_schema == {**node, "properties": {"next": DEFS}, "$defs": {"Node": cut}}

    assert imported(path)[-2:] == ["0 changed, 0 removed, 1 unchanged", "0 imported, 0 skipped"]
    imported(path, "--no-output-schemas")
    tool.refresh_from_db()
    assert tool.output_schema is None


def test_a_depth_that_is_too_large_is_refused(tenant: Tenant, file: Callable[..., str]) -> None:
    with pytest.raises(CommandError, match="less than or equal to 5"):
        imported(file(), "--cycle-depth", "6")
    assert not ApiSource.objects.exists()


def test_a_name_that_another_tool_has_gets_a_number(tenant: Tenant, file: Callable[..., str]) -> None:
    authoring.save_tool(Tool(tenant=tenant, name="write", kind="http", config={"base_url": "https://example.com"}))

    assert "+ write_2 POST /books" in imported(file())


def test_many_tools_at_once_are_recorded_in_the_change_log(tenant: Tenant, file: Callable[..., str]) -> None:
    imported(file())

    names = Change.objects.filter(kind="tool").order_by("position").values_list("object_name", flat=True)
    assert list(names) == ["books_list", "write", "books_delete"]
    report = Report()
    verify_changes(report, {})
    assert not report.findings


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("{}", (), "not an OpenAPI document"),
        ('{"openapi": "3.0.0", "paths": {}}', (), "names no server"),
        ('{"openapi": "3.0.0", "paths": {}}', ("--base-url", "ftp://x"), "base_url"),
    ],
)
def test_what_cannot_be_imported_changes_nothing(
    tenant: Tenant, tmp_path: Path, text: str, options: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)

    with pytest.raises(CommandError, match=message):
        imported(str(path), *options)
    assert not ApiSource.objects.exists()


def test_an_unknown_tenant_or_file_is_told(tenant: Tenant, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        imported(str(tmp_path / "none"))
    with pytest.raises(CommandError, match="Unknown tenant"):
        call_command("import_openapi", "x", "--tenant", "none", "--name", "books")


def run(tenant: Tenant, name: str, arguments: dict[str, Any], context: Any) -> ToolResult:
    tenant.refresh_from_db()
    return asyncio.run(compiled.of_tenant(tenant).tools[name].run(arguments, context))  # type: ignore[arg-type]


def test_a_document_at_an_address_is_fetched_and_its_tools_call_the_api_with_the_secret(
    tenant: Tenant, serve: Callable[..., Service], context: Any
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allowed_networks=["127.0.0.0/8"])
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    more = {"components": {"securitySchemes": schemes}, "security": [{"key": []}]}
    text = json.dumps(document(PATHS, **more) | {"servers": [{"url": "/v1"}]}).encode()
    service = serve(http_response(200, text, "application/json"))
    authoring.set_secret(tenant, "TOKEN", "hush-hush")

    assert imported(f"{service.url}/openapi.json", "--include", "*")[-1] == "3 imported, 1 skipped"
    ApiSource.objects.update(secrets={"key": "TOKEN"})
    run(tenant, "books_delete", {"id": "a/b"}, context)

    received = service.received[-1]
    assert (received.method, received.target) == ("DELETE", "/v1/books/a%2Fb")
    assert received.headers["authorization"] == "Bearer hush-hush"


def test_an_address_that_the_tenant_may_not_call_is_refused(tenant: Tenant) -> None:
    with pytest.raises(CommandError, match="private or reserved"):
        imported("http://127.0.0.1:9/openapi.json")


def test_a_file_refers_to_files_below_its_directory_only(
    tenant: Tenant, file: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "title.json").write_text('{"type": "string", "description": "of a part"}')
    outside = tmp_path.parent / f"{tmp_path.name}-outside.json"
    outside.write_text('{"type": "string"}')
    (tmp_path / "link.json").symlink_to(outside)
    paths = {
        "/good": post({"properties": {"title": {"$ref": "parts/title.json"}}}),
        "/bad": post({"$ref": f"../{outside.name}"}),
        "/link": post({"$ref": "link.json"}),
        "/none": post({"$ref": "nowhere.json"}),
    }

    lines = imported(file(paths))

    assert lines[-1] == "1 imported, 3 skipped"
    assert sum("files of its directory" in line for line in lines) == 2
    assert "No such file" in next(line for line in lines if line.startswith("! POST /none"))
    assert "of a part" in json.dumps(Tool.objects.get(tenant=tenant).input_schema)


def test_others_of_a_document_at_an_address_are_fetched_with_the_same_checks(
    tenant: Tenant, serve: Callable[..., Service]
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allowed_networks=["127.0.0.0/8"])
    paths = {"/a": post({"$ref": "part.json"}), "/b": post({"$ref": "http://10.0.0.1/part.json"})}
    texts = {"/openapi.json": document(paths), "/part.json": {"properties": {"title": {"type": "string"}}}}
    service = serve(lambda request: http_response(200, json.dumps(texts[request.target]).encode(), "application/json"))

    lines = imported(f"{service.url}/openapi.json", "--base-url", service.url)

    assert lines[-1] == "1 imported, 1 skipped"
    assert "private or reserved" in next(line for line in lines if line.startswith("! POST /b"))
    assert imported(f"{service.url}/openapi.json", "--base-url", service.url)[-1] == "0 imported, 1 skipped"
    texts["/part.json"] = {"properties": {"name": {"type": "string"}}}
    assert any(line.startswith("~ ") for line in imported(f"{service.url}/openapi.json", "--base-url", service.url))


def test_of_a_document_of_too_many_operations_those_that_are_included_are_selected_and_stay(
    tenant: Tenant, file: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.catalog.kinds.openapi.documents.operations.MAX_OPERATIONS", 2)
    path = file()
    with pytest.raises(CommandError, match="has 4 operations, of which 4 are selected"):
        imported(path)

    assert imported(path, "--include", "books_list")[-1] == "1 imported, 0 skipped, 3 not selected"
    assert imported(path, "--include", "DELETE /books*")[-1] == "1 imported, 0 skipped, 2 not selected"
    assert ApiSource.objects.get().selection == ["books_list", "DELETE /books*"]
    # What is a tool follows the document, whatever is selected.
    assert imported(path, "--select", "nothing")[-2:] == [
        "0 changed, 0 removed, 2 unchanged",
        "0 imported, 0 skipped, 2 not selected",
    ]
    with pytest.raises(CommandError, match="at most 100 patterns"):
        imported(path, *(part for n in range(101) for part in ("--select", f"a{n}")))


def test_what_was_repaired_in_the_document_is_told(tenant: Tenant, file: Callable[..., str]) -> None:
    parameter = {"in": "query", "name": "n", "schema": {"type": "string", "enum": [1, 2]}}

    assert imported(file({"/a": get(parameter)}))[1] == (
        "* GET /a: #/paths/~1a/get/parameters/0/schema: The values were given the type string."
    )
