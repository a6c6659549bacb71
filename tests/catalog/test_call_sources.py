"""The source of a recorded call's tool at that time: its function, request, document or upstream."""

from typing import Any

import pytest

from tools_app.catalog import authoring
from tools_app.catalog.revisions import source_of
from tools_app.models import ApiSource, Call, Tenant, Tool

pytestmark = pytest.mark.django_db

OPERATION = {"method": "GET", "path": "/books"}


def called(tool: Tool) -> Call:
    return Call(tool_id=tool.pk, tool_revision=tool.revision, tool_name=tool.name)


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({"kind": "python", "config": {"function": "echo"}}, "function echo"),
        ({"kind": "http", "config": {"method": "GET", "base_url": "https://x.example"}}, "HTTP request"),
        ({"kind": "upstream", "config": {"upstream": "books", "tool": "lend"}}, "upstream books: lend"),
        ({"kind": "operation", "config": OPERATION, "operation": "GET /books"}, "API source library: GET /books"),
    ],
)
def test_a_call_tells_the_source_of_its_tool(tenant: Tenant, fields: dict[str, Any], source: str) -> None:
    owner = ApiSource.objects.create(tenant=tenant, name="library") if "operation" in fields else None
    call = called(authoring.save_tool(Tool(tenant=tenant, name="one", source=owner, **fields)))

    assert source_of(call) == source


def test_the_source_is_that_of_the_revision_that_ran(tenant: Tenant) -> None:
    tool = Tool(tenant=tenant, name="one", kind="upstream", config={"upstream": "books", "tool": "lend"})
    call = called(authoring.save_tool(tool))
    tool.config = {"upstream": "other", "tool": "lend"}
    authoring.save_tool(tool)

    assert source_of(call) == "upstream books: lend"


def test_a_call_without_a_tool_or_of_a_deleted_one_has_none(tenant: Tenant) -> None:
    tool = authoring.save_tool(Tool(tenant=tenant, name="one", kind="http", config={"base_url": "https://x.example"}))
    call = called(tool)
    tool.delete()

    assert source_of(call) == ""
    assert source_of(Call(tool_name="docs://note", method="resources/read")) == ""
