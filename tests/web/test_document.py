"""The OpenAPI document: its response schemas hold for rows of every model."""

from typing import Any

import jsonschema_rs
import pytest

from tests.worlds import World
from tools_app.web.api_urls import AGGREGATES


@pytest.fixture
def document(as_: Any) -> Any:
    return as_("superuser").get("schema/")


@pytest.mark.slow
@pytest.mark.parametrize("role", ["superuser", "operator"])
def test_answers_are_as_the_document_says(as_: Any, acme: World, document: Any, role: str) -> None:
    api = as_(role)
    as_("superuser").patch(f"tools/{acme.tool.pk}/", {"title": "Find"})
    paths = ["me/", "figures/", f"calls/{acme.call.pk}/events/", f"tools/{acme.tool.pk}/revisions/"]
    type(acme.upstream).objects.update(credential="header", credential_owner="person")
    own = {
        "exports": {"format": "csv"},
        "tokens": {"name": "new"},
        "upstream-credentials": {"upstream": str(acme.upstream.pk), "value": "hush"},
    }
    for name in AGGREGATES:
        if name in own:
            api.post(f"{name}/", own[name])
        rows = api.get(f"{name}/")["results"]
        assert rows or name == "invitations", name
        paths += [f"{name}/", *(f"{name}/{row['slug' if name == 'tenants' else 'id']}/" for row in rows[:1])]
    for path in paths:
        schema = answer_schema(document, path)
        validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
        assert (path, [error.message for error in validator.iter_errors(api.get(path))]) == (path, [])


def answer_schema(document: Any, path: str) -> dict[str, Any]:
    first, *rest = path.split("/")
    key = "slug" if first == "tenants" else "id"
    template = "/".join([first, f"{{{key}}}", *rest[1:]] if rest[0] else [first, ""])
    operation = document["paths"][f"/api/v1/{template}"]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    return {**schema, "components": document["components"]}


def test_operations_have_names_words_and_tags_that_make_a_pleasant_client(document: Any) -> None:
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"] and one["description"] and one["tags"] for one in operations)
    assert all(not name.endswith(("PagePage", "Row")) for name in document["components"]["schemas"])
    assert document["components"]["securitySchemes"].keys() == {"token", "cookieAuth"}
    token = document["components"]["securitySchemes"]["token"]
    assert (token["type"], token["scheme"]) == ("http", "bearer")


def test_a_page_always_has_its_rows_of_one_type_and_a_link(document: Any) -> None:
    for name in AGGREGATES:
        schema = answer_schema(document, f"{name}/")
        page = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        assert {"next", "results"} <= set(page["required"]), name
        assert page["properties"]["results"]["items"].keys() == {"$ref"}, name
