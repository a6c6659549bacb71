"""Every text and JSON field of the REST API has a maximum length, and rejects longer values.

The fields are those of all serializers: a new field must have a maximum length, too.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from rest_framework import serializers
from rest_framework.exceptions import APIException

from tests.rest import Api
from tools_app.catalog.validation.sizes import MAX_DESCRIPTION_LENGTH, MAX_JSON_BYTES
from tools_app.web import api_urls as urls
from tools_app.web.api.fields import BoundedJson, Choice, Id, Moment
from tools_app.web.api.paging import Query
from tools_app.web.api.serializers import Strict, TenantField

assert urls.AGGREGATES, "the serializers of all views are imported"

# They accept strings of a fixed format only.
SHAPED = (Choice, Id, Moment, TenantField)
NO_TEXT = (serializers.BooleanField, serializers.IntegerField, serializers.FloatField)


def serializers_of(base: type) -> Iterator[type[serializers.Serializer]]:
    for one in base.__subclasses__():
        yield from serializers_of(one)
        if one.__module__.startswith("tools_app.") and (
            not issubclass(one, serializers.ModelSerializer) or hasattr(one, "Meta")
        ):
            yield one


def request_serializers() -> set[type[serializers.Serializer]]:
    """The serializers of request bodies and query parameters. The others only render responses."""
    return {*serializers_of(Strict), *serializers_of(Query)}


def fields() -> Iterator[tuple[str, Any]]:
    for one in sorted(request_serializers(), key=lambda one: one.__qualname__):
        for name, field in one().fields.items():
            if not field.read_only and not isinstance(field, NO_TEXT):
                yield f"{one.__qualname__}.{name}", field


def test_there_are_serializers_of_rows_and_of_parameters() -> None:
    assert {"ToolRow", "CallsQuery", "Rotation", "FiguresQuery"} <= {one.__qualname__ for one in request_serializers()}


def test_bodies_are_read_by_serializers_that_refuse_unknown_fields(as_: Any) -> None:
    schemas = as_("superuser").get("schema/")["components"]["schemas"]
    bodies = {name for name in schemas if name.endswith("Request") and not name.startswith("Patched")}
    assert bodies <= {f"{one.__qualname__.removesuffix('Row')}Request" for one in serializers_of(Strict)}


def beyond(field: Any) -> Any:
    """A value that is slightly too long for the field."""
    if not isinstance(field, BoundedJson):
        return "x" * ((getattr(field, "max_length", None) or 1_000_000) + 1)
    text = "x" * field.max_bytes
    return {"JsonObject": {"x": text}, "JsonObjects": [{"x": text}], "Texts": [text]}[type(field).__name__]


def test_a_field_has_a_bound_and_refuses_what_is_beyond() -> None:
    found = list(fields())
    assert len(found) > 200
    for name, field in found:
        if isinstance(field, BoundedJson):
            assert 0 < field.max_bytes <= MAX_JSON_BYTES, name
        elif not isinstance(field, SHAPED):
            assert isinstance(field, serializers.CharField), f"say here what bounds a field like {name}"
            assert field.max_length, name
        try:
            field.run_validation(beyond(field))
        except APIException as refused:
            assert len(str(refused.detail)) < 1000, f"what {name} refuses is not repeated"  # noqa: PT017 - with the name of the field
        else:
            pytest.fail(f"{name} takes what is beyond its bound")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("description", "x" * (MAX_DESCRIPTION_LENGTH + 1)),
        ("input_schema", {"type": "object", "description": "x" * MAX_JSON_BYTES}),
        ("config", {"base_url": "https://api.example.com", "path": "x" * MAX_JSON_BYTES}),
    ],
)
def test_a_field_that_is_too_large_is_named(as_: Any, acme: Any, field: str, value: Any) -> None:
    api: Api = as_("admin")
    problem = api.patch(f"tools/{acme.tool.pk}/", {field: value}, status=400)
    assert list(problem["errors"]) == [field]
    assert "The limit is" in str(problem["errors"]) or "no more than" in str(problem["errors"])
