"""API sources in the REST API: from the document to tools, and what is rejected."""

import json
from typing import Any

import pytest

from tests.catalog.openapi.documents import OK, document, get
from tests.worlds import World
from tools_app.catalog.kinds.openapi.documents.operations import ParseOptions
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.catalog.kinds.openapi.sources.documents import save_source
from tools_app.models import ApiSource, Tool

PATHS = {
    "/books": {"get": {"operationId": "list_books", "summary": "List books", "tags": ["books"], **OK}, "post": OK},
    "/broken": get({"$ref": "#/nowhere"}),
}
DOCUMENT = json.dumps(document(PATHS))


@pytest.fixture
def row(acme: World) -> str:
    return f"api-sources/{acme.apisource.pk}/"


def worked(source: ApiSource) -> None:
    """Parse the newest document, as a worker does."""
    newest = source.revisions.first()
    assert newest
    documents.read_revision(newest.pk)


def test_from_a_document_to_tools_and_back(as_: Any, acme: World) -> None:
    api = as_("admin")
    created = api.post("api-sources/", {"tenant": "acme", "name": "books", "document": DOCUMENT})
    path, source = f"api-sources/{created['id']}/", ApiSource.objects.get(name="books")
    assert "document" not in created

    assert api.get(f"{path}operations/")["state"] == "pending"
    worked(source)
    shown = api.get(f"{path}operations/?tag=books")
    assert [(one["key"], one["name"], one["doing"]) for one in shown["results"]] == [
        ("GET /books", "list_books", "new")
    ]
    assert (shown["count"], shown["tokens"]) == (1, shown["results"][0]["tokens"])
    assert shown["skipped"][0]["pointer"] == "#/paths/~1broken/get/parameters/0"

    body = {"operations": ["GET /books"], "enable": True, "fingerprint": shown["fingerprint"]}
    assert api.post(f"{path}apply/", body, status=200)["imported"] == ["list_books"]
    assert Tool.objects.get(name="list_books").enabled
    api.patch(f"tools/{Tool.objects.get(name='list_books').pk}/", {"description": "Ours."})
    renewed = {"/books": {"get": {**PATHS["/books"]["get"], "summary": "All books"}}}
    api.post(f"{path}refresh/", {"document": json.dumps(document(renewed))}, status=200)
    worked(source)
    [changed] = api.get(f"{path}operations/?doing=changed")["results"]
    assert changed["changes"] == [{"field": "title", "overridden": False}, {"field": "description", "overridden": True}]
    assert api.post(f"{path}apply/", {}, status=200) == {"imported": [], "changed": ["list_books"], "disabled": []}
    tool = Tool.objects.get(name="list_books")
    assert (tool.title, tool.description) == ("All books", "Ours.")
    source.refresh_from_db()
    source.servers = []
    save_source(source)
    [told] = api.get(f"{path}operations/")["not_offered"]
    assert (told["name"], "names no server" in told["reason"]) == ("list_books", True)


def test_other_options_have_the_document_read_again(as_: Any, acme: World) -> None:
    api = as_("admin")
    created = api.post("api-sources/", {"tenant": "acme", "name": "books", "document": DOCUMENT})
    path, source = f"api-sources/{created['id']}/", ApiSource.objects.get(name="books")
    worked(source)
    assert (created["cycle_depth"], created["output_schemas"], created["selection"]) == (0, False, [])
    api.patch(path, {"base_url": "https://api.example.com"})
    assert source.revisions.get().number == 1

    api.patch(path, {"cycle_depth": 3, "output_schemas": True, "selection": ["tag:books"]})
    assert api.get(f"{path}operations/")["state"] == "pending"
    worked(source)
    newest = source.revisions.first()
    assert newest
    assert documents.parsed_of(newest).options == ParseOptions(3, output_schemas=True, selection=["tag:books"])
    shown = api.get(f"{path}operations/")
    assert ([one["key"] for one in shown["results"]], shown["unselected"]) == (["GET /books"], 2)
    for invalid in ({"cycle_depth": 6}, {"selection": [""]}, {"selection": "a"}, {"selection": ["a"] * 101}):
        assert api.request("PATCH", path, invalid).status_code == 400


def test_null_imports_all(as_: Any, acme: World, row: str) -> None:
    documents.add_revision(acme.apisource, data=DOCUMENT.encode())
    worked(acme.apisource)

    assert as_("admin").post(f"{row}apply/", {"operations": None}, status=200)["imported"] == [
        "list_books",
        "post_books",
    ]


def test_a_document_that_could_not_be_read_is_told_and_not_applied(as_: Any, acme: World, row: str) -> None:
    api = as_("admin")
    api.post(f"{row}refresh/", {"document": "{}"}, status=200)
    assert api.request("POST", f"{row}apply/", {}).status_code == 409
    worked(acme.apisource)

    shown = api.get(f"{row}operations/")

    assert (shown["state"], shown["results"]) == ("failed", [])
    assert "not an OpenAPI document" in shown["problem"]
    assert api.request("POST", f"{row}apply/", {}).status_code == 409


@pytest.mark.parametrize(
    "outdated", [{"fingerprint": "of another time"}, {"revision": 7}], ids=["fingerprint", "revision"]
)
def test_a_preview_that_is_out_of_date_applies_nothing(as_: Any, acme: World, row: str, outdated: Any) -> None:
    documents.add_revision(acme.apisource, data=DOCUMENT.encode())
    worked(acme.apisource)

    assert as_("admin").request("POST", f"{row}apply/", {"operations": None, **outdated}).status_code == 409
    assert not acme.apisource.tools.exists()


@pytest.mark.parametrize(
    ("invalid", "field"),
    [
        ({}, "url"),
        ({"url": "ftp://example.com"}, "url"),
        ({"url": "https://example.com", "document": "{}"}, "document"),
        ({"url": "https://example.com", "base_url": "https://example.com/?a"}, "base_url"),
        ({"url": "https://example.com", "secrets": {"key": "not a name!"}}, "secrets"),
        ({"url": "https://example.com", "server_variables": {"a": 1}}, "server_variables"),
    ],
)
def test_settings_that_cannot_work_are_refused(as_: Any, acme: World, invalid: Any, field: str) -> None:
    response = as_("admin").request("POST", "api-sources/", {"tenant": "acme", "name": "books", **invalid})

    assert (response.status_code, field in response.json()["errors"]) == (400, True), response.json()


def test_an_unknown_operation_is_refused(as_: Any, acme: World, row: str) -> None:
    documents.add_revision(acme.apisource, data=DOCUMENT.encode())
    worked(acme.apisource)

    assert as_("admin").request("POST", f"{row}apply/", {"operations": ["GET /none"]}).status_code == 400


def test_an_operation_is_neither_made_nor_redirected_as_a_tool(as_: Any, acme: World, row: str) -> None:
    documents.add_revision(acme.apisource, data=DOCUMENT.encode())
    worked(acme.apisource)
    api = as_("admin")
    api.post(f"{row}apply/", {"operations": None}, status=200)
    tool = Tool.objects.get(name="list_books")
    config = {"method": "GET", "path": "/elsewhere"}

    assert api.request("PATCH", f"tools/{tool.pk}/", {"config": config}).status_code == 400
    new = {"tenant": "acme", "name": "new", "kind": "operation", "config": config}
    assert api.request("POST", "tools/", new).status_code == 400
