"""API sources in the admin: adding by URL or upload, selecting operations, and reviewing a refresh."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tests.catalog.openapi.documents import BASE, OK, document, get
from tests.worlds import World
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.catalog.kinds.openapi.sources.documents import save_source
from tools_app.models import ApiSource, ApiSourceRevision, Tool

PATHS = {
    "/books": {
        "get": {"operationId": "list_books", "summary": "List all books", "tags": ["books"], **OK},
        "post": {"operationId": "add_book", "tags": ["books"], **OK},
    },
    "/people": {"get": {"operationId": "list_people", "tags": ["people"], **OK}},
    "/broken": get({"$ref": "#/nowhere"}),
}

FORM = {"name": "books", "server_variables": "{}", "secrets": "{}", "cycle_depth": "0"}


@pytest.fixture
def source(acme: World) -> ApiSource:
    return acme.apisource


@pytest.fixture
def says(source: ApiSource) -> Callable[..., ApiSourceRevision]:
    """Read a document as a worker does."""

    def read(paths: dict[str, Any] = PATHS, **more: Any) -> ApiSourceRevision:
        revision = documents.add_revision(source, data=orjson.dumps(document(paths, **more)))
        assert documents.read_revision(revision.pk)
        return revision

    return read


def read_newest(source: ApiSource) -> ApiSourceRevision:
    """Read the newest document, as a worker does."""
    newest = source.revisions.first()
    assert newest
    revision = documents.read_revision(newest.pk)
    assert revision
    return revision


def token_of(response: Any) -> dict[str, str]:
    return {"fingerprint": response.context["plan"].fingerprint, "revision": str(response.context["revision"].number)}


def names_of(response: Any) -> list[str]:
    return [entry.name for entry in response.context["found"]]


def test_an_uploaded_document_is_read_by_a_worker_and_its_operations_shown(as_: Any, acme: World, page: Any) -> None:
    admin = as_("admin")
    repaired = get({"in": "query", "name": "n", "schema": {"type": "string", "enum": [1]}})
    file = SimpleUploadedFile("openapi.json", orjson.dumps(document({**PATHS, "/n": repaired, "/none": {"put": OK}})))

    selection = "/books\nGET /*"
    data = {**FORM, "tenant": acme.tenant.pk, "output_schemas": "on", "selection": selection, "document": file}
    response = admin.post(page("apisource", "add"), data)

    row = ApiSource.objects.get(name="books")
    read_newest(row)
    assert response.headers["Location"] == page("apisource", "show_operations", row)
    shown = admin.get(response.headers["Location"])
    assert names_of(shown) == ["list_books", "add_book", "list_people", "read"]
    for text in (b"is not in the document", b"The values were given the type string.", b"1 not selected"):
        assert text in shown.content
    assert documents.parsed_of(row.revisions.get()).options.output_schemas


def test_other_options_have_the_uploaded_document_read_again(
    as_: Any,
    acme: World,
    page: Any,
    says: Callable[..., ApiSourceRevision],
) -> None:
    before, source = says(), acme.apisource
    ApiSource.objects.update(url="", base_url="", secrets={})
    for depth in ("2", "2"):
        data = {**FORM, "tenant": acme.tenant.pk, "name": source.name, "cycle_depth": depth}
        as_("admin").post(page("apisource", "change", source), data)
    newest = read_newest(source)
    assert newest.number == before.number + 1
    assert documents.parsed_of(newest).options.cycle_depth == 2


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({}, "Enter the URL of the document"),
        ({"url": "ftp://example.com"}, "Invalid URL"),
        ({"url": "https://example.com", "base_url": "https://example.com?a"}, "Remove the query"),
        ({"url": "https://example.com", "secrets": '{"a": 1}'}, "Enter an object"),
        ({"url": "https://example.com", "cycle_depth": "6"}, "less than or equal to 5"),
        ({"url": "https://example.com", "selection": "\n".join(map(str, range(101)))}, "at most 100 patterns"),
        ({"url": "https://example.com", "secrets": '{"a": "NONE"}'}, "There is no secret NONE"),
        ({"url": "https://example.com", "name": "acme-api"}, "already has an API source"),
    ],
)
def test_settings_that_cannot_work_are_refused(as_: Any, acme: World, page: Any, invalid: Any, message: str) -> None:
    form = {**FORM, "tenant": acme.tenant.pk, **invalid}

    assert message in as_("admin").post(page("apisource", "add"), form).content.decode()
    assert ApiSource.objects.filter(tenant=acme.tenant).count() == 1


def test_all_mistakes_are_told_at_once_and_each_once(as_: Any, acme: World, page: Any) -> None:
    data = {"name": acme.apisource.name, "url": "ftp://a", "base_url": "b", "secrets": '{"a": 1}', "cycle_depth": "6"}
    response = as_("admin").post(page("apisource", "add"), {**FORM, "tenant": acme.tenant.pk, **data})
    assert {
        name: len(messages) for name, messages in response.context["adminform"].form.errors.items()
    } == dict.fromkeys(data, 1)


def test_a_document_that_is_being_read_or_could_not_be_read_is_told(as_: Any, source: ApiSource, page: Any) -> None:
    admin, url = as_("admin"), page("apisource", "show_operations", source)

    assert b"No document has been read" in admin.get(url).content
    revision = documents.add_revision(source, data=b"{}")
    assert b"is being read" in admin.get(url).content
    documents.read_revision(revision.pk)
    assert b"neither" in admin.get(url).content


def test_a_document_without_an_operation_that_can_be_imported_offers_no_import(
    as_: Any, source: ApiSource, says: Any, page: Any
) -> None:
    says({"/books": get({"$ref": "shared.json#/Limit"})})

    text = as_("admin").get(page("apisource", "show_operations", source)).content.decode()

    assert "0 operations, " in text
    assert "The document has no operation that can be imported." in text
    assert "<details open>" in text
    assert "Import the document by its URL, or bundle the documents into one." in text
    assert "Import selected" not in text
    assert "Change the source" in text


def test_the_form_says_what_becomes_of_documents_that_a_document_refers_to(as_: Any, acme: World, page: Any) -> None:
    text = as_("admin").get(page("apisource", "add")).content.decode()
    assert "reads it again, with the documents that it refers to" in text
    assert "Documents that it refers to must be bundled into it" in text


def test_a_document_that_no_worker_reads_counts_as_failed(as_: Any, source: ApiSource, page: Any) -> None:
    revision = documents.add_revision(source, data=b"{}")
    ApiSourceRevision.objects.filter(pk=revision.pk).update(created_at=revision.created_at - documents.READ_WITHIN * 2)

    response = as_("admin").get(page("apisource", "show_operations", source))

    assert b"Check that a worker is running" in response.content


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"tag": "people"}, ["list_people"]),
        ({"method": "POST"}, ["add_book"]),
        ({"path": "/books"}, ["list_books", "add_book"]),
        ({"search": "ALL books"}, ["list_books"]),
        ({"search": "nothing"}, []),
    ],
)
def test_operations_are_found_by_tag_method_path_and_words(
    as_: Any, source: ApiSource, says: Any, page: Any, query: dict[str, str], names: list[str]
) -> None:
    says()

    response = as_("admin").get(page("apisource", "show_operations", source), query)

    assert names_of(response) == names
    assert response.context["found_tokens"] == sum(entry.operation.tokens for entry in response.context["found"])


def test_what_is_ticked_is_imported_disabled_or_enabled(as_: Any, source: ApiSource, says: Any, page: Any) -> None:
    says()
    admin, url = as_("admin"), page("apisource", "show_operations", source)

    admin.post(url, {**token_of(admin.get(url)), "key": ["GET /books"]})
    admin.post(url, {**token_of(admin.get(url)), "key": ["POST /books"], "enable": "1"})

    assert list(source.tools.values_list("name", "enabled")) == [("add_book", True), ("list_books", False)]
    assert names_of(admin.get(url)) == ["list_people"]


def test_a_tool_that_is_enabled_and_cannot_run_says_why_where_admins_look(
    as_: Any, source: ApiSource, says: Any, page: Any
) -> None:
    says()
    admin, url = as_("admin"), page("apisource", "show_operations", source)
    admin.post(url, {**token_of(admin.get(url)), "key": ["GET /books"], "enable": "1"})
    tool = source.tools.get()
    addresses = (url, page("tool", "change", tool))
    reason = "The document names no server. Set the base URL of the API source."
    assert not any(reason in admin.get(address).content.decode() for address in addresses)

    source.refresh_from_db()
    source.servers, source.base_url = [], ""
    save_source(source)

    assert all(reason in admin.get(address).content.decode() for address in addresses)


def test_all_that_match_are_imported_at_once(as_: Any, source: ApiSource, says: Any, page: Any) -> None:
    says()
    admin, url = as_("admin"), page("apisource", "show_operations", source)

    admin.post(f"{url}?tag=books", {**token_of(admin.get(url)), "all": "1"})

    assert set(source.tools.values_list("name", flat=True)) == {"add_book", "list_books"}


def test_a_refresh_shows_the_difference_and_keeps_what_is_overridden(
    as_: Any, source: ApiSource, says: Any, page: Any
) -> None:
    says()
    admin, url = as_("admin"), page("apisource", "show_operations", source)
    admin.post(url, {**token_of(admin.get(url)), "all": "1", "enable": "1"})
    Tool.objects.filter(name="list_books").update(description="Ours.")
    renewed = {"operationId": "x", "summary": "New title", "description": "Theirs.", **OK}
    says({"/books": {"get": renewed}}, servers=[{"url": "https://elsewhere.example"}])
    ApiSource.objects.update(base_url="")

    shown = admin.get(url)

    assert b"Overridden, kept" in shown.content
    assert b"Requests would be sent elsewhere" in shown.content
    assert len(shown.context["removed"]) == 2
    admin.post(url, token_of(shown))
    tool = Tool.objects.get(name="list_books")
    assert (tool.title, tool.description, tool.enabled) == ("New title", "Ours.", True)
    assert not Tool.objects.get(name="list_people").enabled
    assert b"All operations of the document are imported" in admin.get(url).content


@pytest.mark.parametrize(
    ("path", "servers", "warned"),
    [
        ("/people", [{"url": "https://elsewhere.example"}], True),
        ("/new", [{"url": "https://elsewhere.example"}], True),
        ("/new", [{"url": BASE}], False),
        ("/new", [], False),
    ],
)
def test_an_operation_that_would_be_sent_elsewhere_is_shown(
    as_: Any, source: ApiSource, says: Any, page: Any, path: str, servers: list[Any], warned: bool
) -> None:
    ApiSource.objects.update(base_url="")
    says()
    admin, url = as_("admin"), page("apisource", "show_operations", source)
    admin.post(url, {**token_of(admin.get(url)), "all": "1"})
    says({**PATHS, path: {"get": {"operationId": "list_people", "tags": ["people"], "servers": servers, **OK}}})

    shown = admin.get(url)

    assert (b"Requests would be sent elsewhere" in shown.content) is warned
    assert (f"GET {path}</code>: <code>https://elsewhere.example" in shown.content.decode()) is warned
    ApiSource.objects.update(base_url=BASE)
    assert b"Requests would be sent elsewhere" not in admin.get(url).content


def test_a_preview_that_is_out_of_date_applies_nothing(as_: Any, source: ApiSource, says: Any, page: Any) -> None:
    says()
    admin, url = as_("admin"), page("apisource", "show_operations", source)
    shown = token_of(admin.get(url))
    says({"/other": get()})

    response = admin.post(url, {**shown, "all": "1"})

    assert b"Review the changes again" in response.content
    assert not source.tools.exists()


def test_an_operation_is_edited_like_a_tool_but_for_its_request(
    as_: Any, source: ApiSource, says: Any, page: Any
) -> None:
    says()
    admin, url = as_("admin"), page("apisource", "show_operations", source)
    admin.post(url, {**token_of(admin.get(url)), "all": "1"})
    tool = Tool.objects.get(name="list_books")
    config = tool.config

    shown = admin.get(page("tool", "change", tool))
    form = {name: "" if value is None else value for name, value in shown.context["adminform"].form.initial.items()}
    data = {**form, "input_schema": '{"type": "object"}', "annotations": "{}", "icons": "[]", "output_schema": ""}
    response = admin.post(page("tool", "change", tool), {**data, "description": "Ours.", "config": "{}"})

    tool.refresh_from_db()
    assert response.status_code == 302, response.context["errors"]
    assert (tool.description, tool.config) == ("Ours.", config)


def test_the_sample_is_the_api_of_the_hub_itself_added_by_one_click_without_a_network(
    as_: Any, acme: World, page: Any
) -> None:
    ApiSource.objects.all().delete()
    admin, data = as_("admin"), {"tenant": acme.tenant.pk}
    assert "Add this hub&#x27;s REST API" in admin.get(page("apisource", "changelist")).content.decode()
    assert "Add this hub" not in as_("auditor").get(page("apisource", "changelist")).content.decode()

    response = admin.post(page("apisource", "sample"), data)

    source = ApiSource.objects.get()
    read_newest(source)
    response = admin.get(response.headers["Location"])
    assert (source.name, source.base_url) == ("mcphub", "http://testserver")
    assert {"tools_list", "keys_create"} <= set(names_of(response))
    assert "personal token" in response.content.decode()
    assert "already" in admin.post(page("apisource", "sample"), data, follow=True).content.decode()
    assert ApiSource.objects.count() == 1


def test_two_clicks_on_the_sample_at_once_add_one(
    as_: Any, acme: World, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ApiSource.objects.all().delete()

    def other_first(source: ApiSource) -> ApiSource:
        ApiSource.objects.create(tenant=source.tenant, name=source.name)
        return save_source(source)

    monkeypatch.setattr("tools_app.catalog.kinds.openapi.admin.api_sources.save_source", other_first)
    response = as_("admin").post(page("apisource", "sample"), {"tenant": acme.tenant.pk}, follow=True)
    assert "has the source mcphub already" in response.content.decode()
    assert ApiSource.objects.count() == 1


def test_a_sample_beyond_the_number_of_sources_is_refused(
    as_: Any, acme: World, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.catalog.kinds.openapi.models.MAX_SOURCES", 1)
    response = as_("admin").post(page("apisource", "sample"), {"tenant": acme.tenant.pk}, follow=True)
    assert "at most 1 API sources" in response.content.decode()
