"""References to other documents: fetching, bundling, and errors of broken references."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
import pytest

from tests.catalog.openapi.documents import OK, document, get, post
from tools_app.catalog.kinds.openapi.documents import bundle
from tools_app.catalog.kinds.openapi.documents.operations import Operation, Parsed, parse
from tools_app.catalog.kinds.openapi.documents.reader import UnreadableDocument

BASE = "https://api.example/v1/openapi.json"
PET = {"type": "object", "properties": {"name": {"type": "string"}, "parent": {"$ref": "#"}}}


def bundled(root: Mapping[str, Any], others: Mapping[str, Any]) -> tuple[bytes, list[str]]:
    """Bundle the document with others, by their relative URLs; also return the fetched URLs."""
    fetched: list[str] = []

    def fetch(url: str) -> bytes:
        fetched.append(url)
        found = others.get(url.removeprefix("https://api.example/v1/"))
        if found is None:
            raise UnreadableDocument("HTTP 404 for the URL of the document.")
        return found if isinstance(found, bytes) else orjson.dumps(found)

    return bundle.bundled(orjson.dumps(root), BASE, fetch), fetched


def parsed(root: Mapping[str, Any], others: Mapping[str, Any]) -> Parsed:
    return parse(bundled(root, others)[0])


def text_of(operation: Operation) -> str:
    return msgspec.json.encode(operation).decode()


def test_a_document_without_others_stays_as_it_is_byte_by_byte() -> None:
    text = b'{ "openapi": "3.1.0",  "paths": {"/a": {"$ref": "#/x"}} }'

    def fetch(url: str) -> bytes:
        raise AssertionError(url)

    assert bundle.bundled(text, BASE, fetch) is text


def test_paths_parameters_and_schemas_come_from_other_documents_and_those_of_others() -> None:
    root = document({"/pets": {"$ref": "paths/pets.json"}, "/a": get({"$ref": "common.json#/parameters/page"})})
    others = {
        "paths/pets.json": post({"$ref": "../schemas/pet.yaml"}),
        "schemas/pet.yaml": b"type: object\nproperties:\n  owner: {$ref: 'person.json#/definitions/person'}\n",
        "schemas/person.json": {"definitions": {"person": {"properties": {"pet": {"$ref": "pet.yaml"}}}}},
        "common.json": {"parameters": {"page": {"name": "page", "in": "query", "schema": {"type": "integer"}}}},
    }

    found = parsed(root, others)

    assert not found.skipped
    assert sorted(operation.path for operation in found.operations) == ["/a", "/pets"]
    schemas = {operation.path: text_of(operation) for operation in found.operations}
    assert '"page"' in schemas["/a"]
    assert '"owner"' in schemas["/pets"]
    assert '"pet"' in schemas["/pets"]


def test_each_document_is_read_once_and_may_refer_to_itself_and_back() -> None:
    root = document({"/a": post({"$ref": "pet.json"}), "/b": post({"$ref": "pet.json#/properties/parent"})})
    root["components"] = {"schemas": {"Name": {"type": "string", "description": "of the first"}}}
    pet = {**PET, "properties": {**PET["properties"], "name": {"$ref": "openapi.json#/components/schemas/Name"}}}  # type: ignore[dict-item]

    text, fetched = bundled(root, {"pet.json": pet})

    assert fetched == ["https://api.example/v1/pet.json"]
    assert not parse(text).skipped
    assert "of the first" in "".join(map(text_of, parse(text).operations))


def test_a_document_that_cannot_be_read_is_a_problem_of_the_operations_that_need_it_only() -> None:
    found = parsed(document({"/a": get({"$ref": "gone.json#/a"}), "/b": get()}), {})

    (skipped,) = found.skipped
    assert "gone.json#/a' was not read: HTTP 404" in skipped.reason
    assert [operation.path for operation in found.operations] == ["/b"]


def test_what_another_document_does_not_have_is_named_as_it_was_written() -> None:
    root = document({"/a": get({"$ref": "common.json#/parameters/page"}), "/b": get({"$ref": "#/nowhere"})})

    reasons = [skipped.reason for skipped in parsed(root, {"common.json": {"parameters": {}}}).skipped]

    assert reasons == ["'common.json#/parameters/page' is not in the document.", "'#/nowhere' is not in the document."]


def test_examples_and_defaults_are_data_and_names_are_names() -> None:
    item = post({"properties": {"default": {"$ref": "one.json"}}, "example": {"$ref": "two.json"}})
    item["post"]["responses"] = {"default": {"$ref": "three.json"}}

    _, fetched = bundled(document({"/a": item}), {})

    assert sorted(url.rpartition("/")[2] for url in fetched) == ["one.json", "three.json"]


def test_the_number_and_the_size_of_the_others_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_DOCUMENTS", 2)
    paths = {f"/{name}": post({"$ref": f"{name}.json"}) for name in "abc"}
    found = parsed(document(paths), {f"{name}.json": {"type": "object"} for name in "abc"})
    assert [one.key for one in found.skipped] == ["POST /c"]
    assert "more than 2 others" in found.skipped[0].reason

    monkeypatch.setattr(bundle, "MAX_BYTES", 1000)
    found = parsed(document({"/a": post({"$ref": "a.json"})}), {"a.json": {"title": "x" * 1000}})
    assert "together" in found.skipped[0].reason

    monkeypatch.setattr(bundle, "MAX_VALUES", 10)
    with pytest.raises(UnreadableDocument, match="values"):
        bundled(document({"/a": {"post": OK}, "/b": {"$ref": "b.json"}}), {"b.json": list(range(10))})


@pytest.mark.parametrize("reference", ["http://[::1", "https://api.example/%zz", "a b", "//", "file:///etc/passwd"])
def test_a_reference_of_any_text_fails_its_operation_at_most(reference: str) -> None:
    found = parsed(document({"/a": get({"$ref": reference}), "/b": get()}), {})

    assert [operation.path for operation in found.operations] == ["/b"]
