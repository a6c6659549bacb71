"""Files of an operation's request that are resources of the hub: named by their URI, and read as the caller may."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.catalog.openapi.documents import document, only, post
from tests.web_services import Service, http, serve
from tests.wire.client import MODERN, RawClient, call_params
from tools_app.catalog import authoring
from tools_app.catalog.kinds.base import NO_SUCH_RESOURCE
from tools_app.catalog.kinds.openapi.attachments import MAX_ATTACHED
from tools_app.catalog.kinds.openapi.documents.operations import parse
from tools_app.models import ApiSource, Call, CallPayload, Resource, ResourceKind, Tenant, Tool
from tools_app.tenants import keys

__all__ = ["http", "serve"]

LOGO = b"\x89PNG\x00\x01"
FIELDS = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
    },
}


@pytest.fixture
def service(tenant: Tenant, serve: Callable[..., Service], http: Callable[..., bytes]) -> Service:
    """A service with two operations that take files, and resources to send."""
    upload_service = serve(http(200, b"stored", "text/plain"))
    Tenant.objects.filter(pk=tenant.pk).update(allowed_networks=["127.0.0.0/8"])
    source = ApiSource.objects.create(tenant=tenant, name="files", base_url=upload_service.url)
    for name, (schema, media) in {
        "upload": (FIELDS, "multipart/form-data"),
        "put_bytes": ({"type": "string", "format": "binary"}, "application/octet-stream"),
    }.items():
        definition = only(parse(orjson.dumps(document({f"/{name}": post(schema, media)})))).definition
        fields = {field: definition[field] for field in ("input_schema", "config", "annotations")}
        authoring.save_tool(
            Tool(tenant=tenant, name=name, kind="operation", source=source, operation=f"POST /{name}", **fields)
        )
    stored = [
        Resource(uri="file:///logo.png", name="Logo", kind=ResourceKind.FILE, blob=LOGO, mime_type="image/png"),
        Resource(uri="docs://note", name="Note", kind=ResourceKind.TEXT, text="Größe"),
        Resource(uri="docs://own", name="Own", kind=ResourceKind.TEXT, text="hush"),
    ]
    for resource in stored:
        resource.tenant = tenant
        authoring.save_resource(resource)
    return upload_service


def call(client: RawClient, tool: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = client.modern("tools/call", call_params(tool, arguments)).json()["result"]
    return result


def test_a_resource_is_sent_as_a_file_under_its_name_and_type(client: RawClient, service: Service) -> None:
    arguments = {
        "file": {"resource": "file:///logo.png"},
        "more": [{"resource": "docs://note", "filename": "n.md", "media_type": "text/markdown"}, {"data": "AQ=="}],
    }
    assert call(client, "upload", **arguments)["content"][0]["text"] == "stored"
    [request] = service.received
    assert b'name="file"; filename="logo.png"\r\nContent-Type: image/png\r\n\r\n' + LOGO in request.body
    assert b'name="more"; filename="n.md"\r\nContent-Type: text/markdown\r\n\r\n' + "Größe".encode() in request.body
    assert b'filename="more"\r\nContent-Type: application/octet-stream\r\n\r\n\x01' in request.body


def test_a_resource_is_a_whole_body(client: RawClient, service: Service) -> None:
    call(client, "put_bytes", body={"resource": "file:///logo.png"})
    call(client, "put_bytes", body="AQ==")
    assert [request.body for request in service.received] == [LOGO, b"\x01"]


def test_the_record_has_the_uri_and_not_the_bytes(client: RawClient, service: Service) -> None:
    call(client, "upload", file={"resource": "docs://own"})
    payload = CallPayload.objects.get(call=Call.objects.get(tool_name="upload"))
    assert "docs://own" in str(payload.arguments)
    assert "hush" not in str(vars(payload))


@pytest.mark.parametrize(
    "scopes",
    [{"tool_patterns": ["upload", "docs://note"]}, {"methods": ["tools/*"]}],
    ids=["another name", "another method"],
)
@pytest.mark.parametrize("version", [MODERN, "2025-06-18"])
def test_a_key_sends_only_what_it_may_read(
    make_client: Callable[..., RawClient], tenant: Tenant, service: Service, scopes: dict[str, Any], version: str
) -> None:
    narrow = make_client(keys.issue(tenant, "narrow", **scopes)[1]).peer(version)
    answer = narrow.call("upload", {"file": {"resource": "docs://own"}}).text
    assert NO_SUCH_RESOURCE in answer
    assert service.received == []
    assert Call.objects.get(tool_name="upload").outcome == "rejected"


@pytest.mark.parametrize(
    ("uri", "change"),
    [
        ("docs://nothing", {}),
        ("docs://own", {"enabled": False}),
        ("docs://own", {"kind": ResourceKind.PYTHON, "config": {"function": "x"}}),
    ],
)
def test_only_stored_resources_are_sent(client: RawClient, service: Service, uri: str, change: dict[str, Any]) -> None:
    Resource.objects.filter(uri="docs://own").update(**change)
    result = call(client, "upload", file={"resource": uri})
    assert result["isError"] is True
    assert result["content"][0]["text"] == f"{uri}: {NO_SUCH_RESOURCE}"
    assert service.received == []


def test_a_resource_of_another_tenant_is_not_sent(
    client: RawClient, service: Service, tenant: Tenant, other_tenant: Tenant
) -> None:
    Resource.objects.filter(uri="docs://own").update(tenant=other_tenant)
    assert NO_SUCH_RESOURCE in call(client, "upload", file={"resource": "docs://own"})["content"][0]["text"]
    assert service.received == []


@pytest.mark.parametrize("file", [{}, {"data": "AQ==", "resource": "docs://note"}, {"resource": 1}])
def test_a_file_has_either_bytes_or_a_resource(client: RawClient, service: Service, file: Any) -> None:
    assert call(client, "upload", file=file)["isError"] is True
    assert service.received == []


def test_a_call_sends_as_many_bytes_as_a_client_could_itself(
    client: RawClient, service: Service, settings: Any
) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 4096
    Resource.objects.filter(uri="docs://own").update(text="x" * 4096)
    assert "error" not in str(call(client, "upload", file={"resource": "docs://own"}))
    both = [{"resource": "docs://own"}, {"resource": "docs://note"}]
    assert "at most 4096 bytes together" in call(client, "upload", more=both)["content"][0]["text"]


def test_a_call_sends_a_bounded_number_of_resources(client: RawClient, service: Service) -> None:
    many = [{"resource": f"docs://{at}"} for at in range(MAX_ATTACHED + 1)]
    assert f"at most {MAX_ATTACHED} resources" in call(client, "upload", more=many)["content"][0]["text"]
