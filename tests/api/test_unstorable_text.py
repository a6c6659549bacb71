"""U+0000 and lone surrogates, which no column takes, in every field of every endpoint: refused, and never a failure.

The fields are those of the serializers of the endpoints of `test_roles.py`. `tests/services` runs it on PostgreSQL too.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import URLPattern
from rest_framework import serializers

from tests.admin.conftest import World
from tests.api import test_roles
from tests.api.conftest import ROOT, Api
from tests.api.test_roles import ENDPOINTS, address, body
from tools_app.api.v1.base.paging import Query
from tools_app.api.v1.urls import urlpatterns

# As a text, as names and values in JSON, and as bytes that are no JSON text.
TEXTS = ("a\0b", "a\ud800b")
# They take no body, and read none.
BODILESS = {"check", "renew", "revoke", "cancel", "end", "test", "block", "unblock"}
ROTATED_WITHOUT_BODY = {"api-alert-destinations-rotate", "api-service-clients-rotate"}
rows = test_roles.rows
PATTERNS: dict[str, URLPattern] = {str(pattern.name): pattern for pattern in urlpatterns}


def writing() -> Iterator[Any]:
    for name, methods in ENDPOINTS.items():
        for method in methods:
            if method in {"post", "put", "patch"} and name != "api-nothing":
                yield pytest.param(name, method, id=f"{method}-{name.removeprefix('api-')}")


def fields_of(name: str, method: str) -> dict[str, serializers.Field]:
    """The fields that a request may have."""
    view = PATTERNS[name].callback
    made = view.cls(**view.initkwargs)
    made.action, made.request, made.format_kwarg, made.kwargs = view.actions[method], None, None, {}
    return {field: one for field, one in made.get_serializer_class()().fields.items() if not one.read_only}


def values(text: str) -> list[Any]:
    return [text, {text: 1}, [{"x": {"y": [text]}}]]


@pytest.mark.parametrize(("name", "method"), list(writing()))
def test_a_body_with_what_cannot_be_stored_is_refused(
    people: dict[str, User],
    rows: dict[str, Any],
    as_: Any,
    undone: Any,
    name: str,
    method: str,
) -> None:
    api: Api = as_("admin" if name.startswith(("api-tokens", "api-exports")) else "superuser")
    sent = body(name, method) or {}
    for field in {*fields_of(name, method), *sent, "unknown"}:
        for value in (one for text in TEXTS for one in values(text)):
            with undone():
                answer = api.ask(method.upper(), address(name, rows), {**sent, field: value})
            if name.rpartition("-")[2] in BODILESS or name in ROTATED_WITHOUT_BODY:
                assert answer.status_code < 300, answer.content
            else:
                assert (field, value, answer.status_code) == (field, value, 400), answer.content


@pytest.mark.parametrize("raw", [b'{"name": "a\x00b"}', b'{"name": "\xed\xa0\x80"}', b"\x00", b"\xed\xa0\x80"])
def test_bytes_that_are_no_json_text_are_refused(as_: Any, raw: bytes) -> None:
    answer = as_("admin").client.post(f"{ROOT}tokens/", raw, content_type="application/json")
    assert answer.status_code == 400


def parameters() -> list[Any]:
    found = []
    for name, pattern in PATTERNS.items():
        query = getattr(getattr(pattern.callback, "cls", None), "query_class", None)
        if query is not None and "get" in ENDPOINTS[name] and (name.endswith("-list") or name == "api-figures"):
            found += [pytest.param(name, field, id=f"{name}-{field}") for field in query().fields]
    assert len(found) > 50
    assert issubclass(query or Query, Query)
    return found


@pytest.mark.parametrize(("name", "field"), parameters())
def test_a_parameter_with_what_cannot_be_stored_is_no_failure(
    acme: World,
    people: dict[str, User],
    rows: dict[str, Any],
    as_: Any,
    name: str,
    field: str,
) -> None:
    path = address(name, rows)
    # The server refuses U+0000 before; half of a surrogate pair is no UTF-8, and reads as U+FFFD.
    for text, good in (("a%00b", {400}), ("%00", {400}), ("%ED%A0%80", {200, 400, 404})):
        answer = as_("superuser").client.get(f"{ROOT}{path}?{field}={text}")
        assert answer.status_code in good, (text, answer.status_code, answer.content)
        assert json.loads(answer.content)
