"""Helpers of the tests of OpenAPI: small documents, and the tools of their operations."""

from typing import Any

import orjson

from tools_app.catalog.kinds.openapi.config import parse_operation
from tools_app.catalog.kinds.openapi.documents.operations import Operation, Parsed, parse
from tools_app.catalog.kinds.openapi.request import Credential, build_operation
from tools_app.core.http.client import Outbound
from tools_app.core.http.urls import parse_url

BASE = "https://api.example.com/v1"
OK: dict[str, Any] = {"responses": {"200": {"description": "OK"}}}


def document(paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    top = {"swagger": "2.0"} if version == "2.0" else {"openapi": version}
    return {**top, "info": {"title": "T", "version": "1"}, "servers": [{"url": BASE}], "paths": paths, **more}


def parsed(paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> Parsed:
    return parse(orjson.dumps(document(paths, version, **more)))


def get(*parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"operationId": "read", "parameters": list(parameters), **OK, **more}}


def post(schema: Any, media_type: str = "application/json", **media: Any) -> dict[str, Any]:
    body = {"required": True, "content": {media_type: {"schema": schema, **media}}}
    return {"post": {"operationId": "write", "requestBody": body, **OK}}


def only(found: Parsed) -> Operation:
    assert not found.skipped, found.skipped
    [operation] = found.operations
    return operation


def request(operation: Operation, arguments: dict[str, Any], *credentials: Credential) -> Outbound:
    config = parse_operation(operation.definition["config"])
    return build_operation(config, parse_url(BASE), arguments, list(credentials))
