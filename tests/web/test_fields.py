"""Validation of the REST API's fields: accepted values, and similar ones that are rejected."""

from typing import Any
from uuid import UUID

import pytest
from rest_framework import serializers

from tools_app.catalog.validation.sizes import MAX_JSON_BYTES
from tools_app.web.api import fields

UPPER_CASE = "0192F0C1-A2B3-7C3D-8E4F-001122334455"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (fields.Text(), 1),
        (fields.Choice(["1", "x"]), 1),
        (fields.Flag(), 1),
        (fields.Whole(), True),
        (fields.Whole(), "1"),
        (fields.Whole(), 1.5),
        (fields.Whole(), 2**31),
        (fields.Whole(max_value=2**40), 2**31),
        (fields.Number(), True),
        (fields.Number(), "1"),
        (fields.Moment(), "2026-01-31T12:00:00"),
        (fields.Moment(), "2026-01-32T12:00:00Z"),
        (fields.Moment(), "2026-01-31"),
        (fields.Moment(), 1769860800),
        (fields.Id(), 1),
        (fields.Id(), "0192f0c1a2b37c3d8e4f001122334455"),
        (fields.Id(), "0192f0c1-a2b3-7c3d-8e4f-001122334455\n"),
        (fields.JsonObject(), []),
        (fields.JsonObject(max_bytes=9), {"key": "value"}),
        (fields.JsonObjects(), {}),
        (fields.JsonObjects(), [{}, 1]),
        (fields.JsonObjects(max_bytes=9), [{"key": "value"}]),
        (fields.JsonObjects(), [{"key": "x" * MAX_JSON_BYTES}]),
        (fields.Texts(), "a"),
        (fields.Texts(), ["a", 1]),
        (fields.Texts(max_bytes=9), ["a" * 10]),
        (fields.FlagParameter(), "yes"),
        (fields.WholeParameter(), "1.0"),
        (fields.WholeParameter(), "1" * 16),
        (fields.WholeParameter(), "\u0663"),
    ],
)
def test_a_value_that_only_looks_right_is_refused(field: serializers.Field, value: Any) -> None:
    with pytest.raises(serializers.ValidationError):
        field.run_validation(value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (fields.Text(), " a ", " a "),
        (fields.Choice(["1", "x"]), "1", "1"),
        (fields.Whole(), 1.0, 1),
        (fields.Whole(), 2**31 - 1, 2**31 - 1),
        (fields.Number(), 1, 1.0),
        (fields.Id(), UPPER_CASE, UUID(UPPER_CASE)),
        (fields.JsonObject(max_bytes=15), {"key": "value"}, {"key": "value"}),
        (fields.JsonObjects(), [{}], [{}]),
        (fields.Texts(), ["a"], ["a"]),
        (fields.FlagParameter(), "true", True),
        (fields.FlagParameter(), "false", False),
        (fields.WholeParameter(), "-" + "1" * 15, -111111111111111),
    ],
)
def test_a_value_is_kept_as_it_is_written(field: serializers.Field, value: Any, expected: Any) -> None:
    assert field.run_validation(value) == expected


def test_a_refused_choice_is_told_in_short() -> None:
    with pytest.raises(serializers.ValidationError) as refusal:
        fields.Choice(["x"]).run_validation("y" * 1000)
    assert "y" * 100 in str(refusal.value)
    assert "y" * 101 not in str(refusal.value)
