"""Operations of API sources as tools: running them, and managing them like other tools."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.web_services import Service
from tools_app.catalog import authoring, compiled, revisions
from tools_app.catalog.kinds.http.config import ConfigProblem
from tools_app.catalog.kinds.openapi.config import base_url_of, parse_operation
from tools_app.catalog.kinds.openapi.runner import settings_of
from tools_app.models import ApiSource, Tenant, Tool

pytestmark = pytest.mark.django_db

CONFIG = {
    "method": "POST",
    "path": "/books/{id}",
    "parameters": [{"argument": "id", "name": "id", "place": "path", "style": "simple"}],
    "body": {"media_type": "application/json", "mode": "json", "fields": [{"argument": "title", "name": "title"}]},
    "security": [["app", "user"], ["basic"]],
}
SCHEMES = {
    "app": {"kind": "header", "name": "X-App"},
    "user": {"kind": "header", "name": "X-User"},
    "basic": {"kind": "basic", "name": "Authorization"},
}


@pytest.fixture
def local(tenant: Tenant) -> Tenant:
    Tenant.objects.filter(pk=tenant.pk).update(allowed_networks=["127.0.0.0/8"])
    return tenant


@pytest.fixture
def tool(local: Tenant) -> Tool:
    source = ApiSource.objects.create(tenant=local, name="books", schemes=SCHEMES)
    return authoring.save_tool(
        Tool(
            tenant=local,
            name="rename",
            kind="operation",
            source=source,
            operation="POST /books/{id}",
            config=CONFIG,
            input_schema={"type": "object"},
        )
    )


def test_a_server_that_cannot_be_read_is_a_problem_of_the_base_url(tool: Tool) -> None:
    assert tool.source
    tool.source.url = "https://books.example/openapi.json"
    settings = settings_of(tool.source, [{"url": "https://[::1"}], SCHEMES)
    with pytest.raises(ConfigProblem, match="base_url: Invalid URL"):
        base_url_of(parse_operation(CONFIG), settings)


def run(tenant: Tenant, arguments: dict[str, Any], context: Any, name: str = "rename") -> Any:
    tenant.refresh_from_db()
    return asyncio.run(compiled.of_tenant(tenant).tools[name].run(arguments, context))  # type: ignore[arg-type]


def test_a_call_becomes_one_request_below_the_base_url(
    local: Tenant, tool: Tool, serve: Callable[..., Service], http: Callable[..., bytes], context: Any
) -> None:
    service = serve(http(200, b'{"id": 7}', "application/json"))
    ApiSource.objects.update(base_url=f"{service.url}/v1/")

    result = run(local, {"id": "a/b", "title": "T"}, context)

    [request] = service.received
    assert (request.method, request.target, json.loads(request.body)) == ("POST", "/v1/books/a%2Fb", {"title": "T"})
    assert result.content[0]["text"] == '{"id":7}'


@pytest.mark.parametrize(
    ("mapped", "expected"),
    [
        ({"app": "A", "user": "U"}, {"x-app": "app-secret", "x-user": "user-secret"}),
        ({"app": "A", "basic": "B"}, {"authorization": "Basic YW5uOnBhc3N3b3Jk"}),
        ({"app": "A"}, {}),
        ({}, {}),
    ],
)
def test_the_first_alternative_whose_secrets_are_all_there_is_sent(
    local: Tenant,
    tool: Tool,
    serve: Callable[..., Service],
    http: Callable[..., bytes],
    context: Any,
    mapped: dict[str, str],
    expected: dict[str, str],
) -> None:
    service = serve(http(200, b"ann:password app-secret", "text/plain"))
    for name, value in (("A", "app-secret"), ("U", "user-secret"), ("B", "ann:password")):
        authoring.set_secret(local, name, value)
    ApiSource.objects.update(base_url=service.url, secrets=mapped)

    result = run(local, {"id": "1"}, context)

    headers = service.received[0].headers
    assert {name: headers[name] for name in ("x-app", "x-user", "authorization") if name in headers} == expected
    assert ("password" in result.content[0]["text"]) == ("authorization" not in expected)


def test_a_secret_that_was_deleted_is_told_and_nothing_is_sent(
    local: Tenant, tool: Tool, serve: Callable[..., Service], http: Callable[..., bytes], context: Any
) -> None:
    service = serve(http(200))
    ApiSource.objects.update(base_url=service.url, secrets={"basic": "GONE"})

    with pytest.raises(Exception, match="requires the secret 'GONE'"):
        run(local, {"id": "1"}, context)
    assert not service.received


def test_a_redirect_of_a_request_that_writes_is_not_followed(
    local: Tenant, tool: Tool, serve: Callable[..., Service], http: Callable[..., bytes], context: Any
) -> None:
    service = serve(http(307, Location="/elsewhere"))
    ApiSource.objects.update(base_url=service.url)

    assert run(local, {"id": "1"}, context).is_error
    assert len(service.received) == 1


def test_a_copy_runs_like_the_original_and_no_refresh_changes_it(local: Tenant, tool: Tool) -> None:
    copy = revisions.clone(tool, local, "rename_2", enabled=True, by=None)

    assert (copy.source, copy.operation, copy.config) == (tool.source, "", CONFIG)


def test_a_tenant_without_the_source_gets_no_copy(tool: Tool, other_tenant: Tenant) -> None:
    with pytest.raises(revisions.RevisionError, match="does not have the API source"):
        revisions.clone(tool, other_tenant, "rename", enabled=True, by=None)


def test_a_copy_of_what_was_an_operation_has_no_source_of_another_tenant(tool: Tool, other_tenant: Tenant) -> None:
    """The other tenant's copy would be deleted with the source."""
    tool.kind, tool.config = "http", {"base_url": "https://books.example.com"}
    authoring.save_tool(tool)
    assert tool.source
    assert revisions.clone(tool, other_tenant, "rename", enabled=True, by=None).source is None


def test_deleting_a_source_deletes_its_tools(tool: Tool) -> None:
    assert tool.source
    authoring.delete(tool.source)

    assert not Tool.objects.exists()
