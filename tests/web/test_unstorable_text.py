"""U+0000 and lone surrogates in every field of every endpoint: rejected, never a server error.

The fields are those of the serializers of the endpoints of `test_roles.py`. `tests/services` runs this on PostgreSQL.
"""

import json
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import URLPattern
from rest_framework import serializers

from tests.rest import ROOT, Api
from tests.web import test_roles
from tests.web.test_roles import ENDPOINTS, address, body
from tests.worlds import World
from tools_app.web.api.paging import Query
from tools_app.web.api_urls import urlpatterns

# They submit every field of every endpoint.
pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

# In strings, and in names and values of JSON.
TEXTS = ("a\0b", "a\ud800b")
# Actions that ignore the body.
BODILESS = {"check", "directory", "renew", "revoke", "cancel", "end", "test", "block", "unblock"}
ROTATED_WITHOUT_BODY = {"api-alert-destinations-rotate", "api-service-clients-rotate"}
rows = test_roles.rows
PATTERNS: dict[str, URLPattern] = {str(pattern.name): pattern for pattern in urlpatterns}


def writing() -> dict[str, list[tuple[str, str]]]:
    """Endpoint and method of writes, by aggregate: creating the rows is slower than the requests."""
    found: dict[str, list[tuple[str, str]]] = {}
    for aggregate, endpoints in test_roles.cases().items():
        if wrote := [
            (name, method)
            for name, method, _ in endpoints
            if method in {"post", "put", "patch"} and name != "api-nothing"
        ]:
            found[aggregate] = wrote
    return found


def fields_of(name: str, method: str) -> dict[str, serializers.Field]:
    """The writable fields of a request."""
    view = PATTERNS[name].callback
    instance = view.cls(**view.initkwargs)
    instance.action, instance.request, instance.format_kwarg, instance.kwargs = view.actions[method], None, None, {}
    return {field: one for field, one in instance.get_serializer_class()().fields.items() if not one.read_only}


def values(text: str) -> list[Any]:
    return [text, {text: 1}, [{"x": {"y": [text]}}]]


@pytest.mark.parametrize("aggregate", writing())
def test_a_body_with_what_cannot_be_stored_is_refused(
    people: dict[str, User], rows: dict[str, Any], as_: Any, undone: Any, aggregate: str
) -> None:
    api: Api = as_("admin" if aggregate in {"tokens", "exports"} else "superuser")
    for name, method in writing()[aggregate]:
        valid = body(name, method) or {}
        bodiless = name.rpartition("-")[2] in BODILESS or name in ROTATED_WITHOUT_BODY
        fields = {*fields_of(name, method), *valid, "unknown"}
        for field, value in product(fields, [one for text in TEXTS for one in values(text)]):
            with undone():
                response = api.request(method.upper(), address(name, rows), {**valid, field: value})
            case = (name, method, field, value)
            if bodiless:
                assert (case, response.status_code < 300) == (case, True), response.content
            else:
                assert (case, response.status_code) == (case, 400), response.content


@pytest.mark.parametrize("raw", [b'{"name": "a\x00b"}', b'{"name": "\xed\xa0\x80"}', b"\x00", b"\xed\xa0\x80"])
def test_bytes_that_are_no_json_text_are_refused(as_: Any, raw: bytes) -> None:
    response = as_("admin").client.post(f"{ROOT}tokens/", raw, content_type="application/json")
    assert response.status_code == 400


def parameters() -> dict[str, list[str]]:
    """The query parameters of each list."""
    found = {}
    for name, pattern in PATTERNS.items():
        query = getattr(getattr(pattern.callback, "cls", None), "query_class", None)
        if query is not None and "get" in ENDPOINTS[name] and (name.endswith("-list") or name == "api-figures"):
            assert issubclass(query, Query)
            found[name] = list(query().fields)
    assert sum(map(len, found.values())) > 50
    return found


@pytest.mark.parametrize("name", parameters())
def test_a_parameter_with_what_cannot_be_stored_is_no_failure(
    acme: World, people: dict[str, User], rows: dict[str, Any], as_: Any, name: str
) -> None:
    path, client = address(name, rows), as_("superuser").client
    # U+0000 is rejected by the server; a lone surrogate is invalid UTF-8, and decodes as U+FFFD.
    tried = (("a%00b", {400}), ("%00", {400}), ("%ED%A0%80", {200, 400, 404}))
    for field, (text, good) in product(parameters()[name], tried):
        response = client.get(f"{ROOT}{path}?{field}={text}")
        assert response.status_code in good, (field, text, response.status_code, response.content)
        assert json.loads(response.content)
