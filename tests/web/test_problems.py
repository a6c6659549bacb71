"""Errors of the REST API as problem details."""

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.exceptions import ValidationError as ModelProblem
from django.db import IntegrityError, OperationalError
from django.http import Http404
from rest_framework import exceptions

from tools_app.web.api.problems import NOTHING, ChangedMeanwhile, TooLarge, problem_answer


def answer_to(raised: Exception) -> Any:
    response = problem_answer(raised, {})
    assert response is not None
    assert response.content_type == "application/problem+json"
    assert response.status_code == response.data["status"]
    return response


def test_a_problem_has_its_type_title_status_and_detail() -> None:
    assert answer_to(Http404()).data == {
        "type": "urn:mcphub:problem:missing",
        "title": "Not Found",
        "status": 404,
        "detail": NOTHING,
    }


@pytest.mark.parametrize(
    ("raised", "status", "name"),
    [
        (exceptions.ParseError(), 400, "invalid"),
        (SuspiciousOperation("Invalid host."), 400, "invalid"),
        (ModelProblem("Too many."), 400, "invalid"),
        (exceptions.NotAuthenticated(), 401, "unauthenticated"),
        (PermissionDenied("Not yours."), 403, "forbidden"),
        (Http404(), 404, "missing"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method"),
        (exceptions.NotAcceptable(), 406, "other"),
        (IntegrityError("UNIQUE constraint failed: tools_app_tool.name"), 409, "conflict"),
        (ChangedMeanwhile(), 412, "changed-meanwhile"),
        (TooLarge(), 413, "too-large"),
        (exceptions.UnsupportedMediaType("text/xml"), 415, "media-type"),
        (exceptions.Throttled(), 429, "throttled"),
        (OperationalError("no such table: tools_app_tool"), 503, "unavailable"),
    ],
)
def test_a_client_tells_problems_apart_by_status_and_type(raised: Exception, status: int, name: str) -> None:
    body = answer_to(raised).data
    assert (body["status"], body["type"]) == (status, f"urn:mcphub:problem:{name}")
    assert body["detail"]
    assert "tools_app" not in str(body), "what the database says is not for clients"


@pytest.mark.parametrize("refusal", [PermissionDenied("Ask an admin."), SuspiciousOperation("Ask an admin.")])
def test_a_refusal_keeps_its_reason(refusal: Exception) -> None:
    assert answer_to(refusal).data["detail"] == "Ask an admin."


def test_invalid_fields_are_named_by_their_paths() -> None:
    nested = {"a": ["1"], "b": {"c": ["2"], "non_field_errors": ["3"]}, "d": [{}, {"e": ["4", "5"]}]}
    body = answer_to(exceptions.ValidationError(nested)).data
    assert body["errors"] == {"a": ["1"], "b.c": ["2"], "b": ["3"], "d.1.e": ["4", "5"]}
    assert body["detail"] == "4 values are invalid. See `errors`."


def test_a_single_invalid_field_is_one_value() -> None:
    body = answer_to(ModelProblem({"name": ["Too long."]})).data
    assert (body["errors"], body["detail"]) == ({"name": ["Too long."]}, "One value is invalid. See `errors`.")


@pytest.mark.parametrize("field", ["non_field_errors", "__all__"])
def test_what_concerns_no_single_field_is_in_the_detail(field: str) -> None:
    body = answer_to(exceptions.ValidationError({field: ["Too many.", "Too large."], "name": ["Too long."]})).data
    assert (body["errors"], body["detail"]) == ({"name": ["Too long."]}, "Too many. Too large.")


@pytest.mark.parametrize(
    ("raised", "seconds"),
    [
        (exceptions.Throttled(wait=0.2), "1"),
        (exceptions.Throttled(wait=89.6), "90"),
        (OperationalError("connection refused"), "2"),
        (Http404(), None),
    ],
)
def test_a_client_that_may_come_back_is_told_after_how_many_seconds(raised: Exception, seconds: str | None) -> None:
    response = answer_to(raised)
    assert response.headers.get("Retry-After") == seconds
    assert "connection refused" not in response.data["detail"]


def test_an_exception_that_nobody_expects_is_no_problem_of_the_client() -> None:
    assert problem_answer(KeyError("x"), {}) is None
