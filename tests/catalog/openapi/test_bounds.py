"""Documents, their operations and what these send have the bounds of `docs/security.md`."""

import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tools_app.catalog.kinds.openapi import styles as operation_styles
from tools_app.catalog.kinds.openapi.documents import arguments as openapi_arguments
from tools_app.catalog.kinds.openapi.documents import operations as openapi
from tools_app.catalog.kinds.openapi.documents import reader as openapi_reader
from tools_app.catalog.kinds.openapi.documents import selection
from tools_app.catalog.tool_api.results import ToolError
from tools_app.models import ApiSource, Tenant

pytestmark = pytest.mark.slow


def test_a_query_of_an_operation_has_bounds() -> None:
    def text(value: Any) -> str:
        return operation_styles.query_text(operation_styles.pairs(value, "x", "deepObject", explode=True))

    assert text(["a"] * operation_styles.MAX_PAIRS)
    nested: Any = "a"
    for _ in range(operation_styles.MAX_DEPTH + 1):
        nested = [nested]
    for value in (["a"] * (operation_styles.MAX_PAIRS + 1), {"n" * 100_000: ["a"] * 200}, nested):
        with pytest.raises(ToolError, match=r"more than|deeper than"):
            text(value)
    assert text(nested[0])


def test_a_document_has_bounds() -> None:
    smallest = b'{"openapi": "3.1.0", "paths": {}}'
    assert openapi.parse(smallest.ljust(openapi_reader.MAX_BYTES)).operations == []
    values = openapi_reader.MAX_VALUES - 3
    for text in (
        smallest.ljust(openapi_reader.MAX_BYTES + 1),
        b'{"a":' + b"[" * (openapi_reader.MAX_DEPTH + 1) + b"]" * (openapi_reader.MAX_DEPTH + 1) + b"}",
        b'{"a":[' + b"1," * values + b"1,1,1]}",
    ):
        with pytest.raises(openapi_reader.UnreadableDocument, match=r"larger than|deeper than|more than"):
            openapi_reader.read(text)
    openapi_reader.read(b'{"a":' + b"[" * (openapi_reader.MAX_DEPTH - 2) + b"]" * (openapi_reader.MAX_DEPTH - 2) + b"}")
    paths = {f"/{number}": {"get": {}} for number in range(openapi.MAX_OPERATIONS + 1)}
    with pytest.raises(openapi_reader.UnreadableDocument, match="operations"):
        openapi.parse(json.dumps({"openapi": "3.1.0", "paths": paths}).encode())


def test_an_operation_has_bounds() -> None:
    def skipped(**operation: Any) -> list[str]:
        text = json.dumps({"openapi": "3.1.0", "paths": {"/a": {"post": operation}}}).encode()
        return [part.reason for part in openapi.parse(text).skipped]

    def parameters(number: int) -> list[Any]:
        return [{"in": "query", "name": f"p{at}"} for at in range(number)]

    assert skipped(parameters=parameters(openapi_arguments.MAX_PARTS)) == []
    assert "more than" in skipped(parameters=parameters(openapi_arguments.MAX_PARTS + 1))[0]
    large = [{**part, "schema": {"const": "x" * 3000}} for part in parameters(100)]
    assert "larger than" in skipped(parameters=large)[0]


def test_patterns_of_selected_operations_have_bounds(tenant: Tenant) -> None:
    def faults(*patterns: str) -> Any:
        try:
            ApiSource(tenant=tenant, name="x", selection=list(patterns)).clean()
        except ValidationError as problem:
            return problem.message_dict
        return {}

    pattern = "/" + "x" * (selection.MAX_PATTERN - 1)
    assert "selection" not in faults(*[pattern] * selection.MAX_PATTERNS)
    assert "selection" in faults(*[pattern] * (selection.MAX_PATTERNS + 1))
    assert "selection" in faults(pattern + "x")
