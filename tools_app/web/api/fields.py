"""Serializer fields with strict types, as in the OpenAPI document: a number is not a string, and "yes" is not true."""

import re
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from tools_app.catalog.validation.sizes import MAX_JSON_BYTES, json_size_fault

UUID_TEXT = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
NUMBER_TEXT = re.compile(r"-?\d{1,15}", re.ASCII)
# PostgreSQL's limit for such a column.
MAX_INTEGER = 2**31 - 1
# The maximum length of a rejected value in an error message.
MAX_SHOWN = 100


class Text(serializers.CharField):
    """A string, kept unchanged."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        """Reject numbers, which REST framework would convert."""
        if not isinstance(data, str):
            self.fail("invalid")
        text: str = super().to_internal_value(data)
        return text


class Email(Text, serializers.EmailField):
    """An e-mail address."""


class Choice(serializers.ChoiceField):
    """One of several strings."""

    def to_internal_value(self, data: Any) -> Any:
        """Reject numbers that look like a choice."""
        if not isinstance(data, str) or len(data) > MAX_SHOWN:
            self.fail("invalid_choice", input=str(data)[:MAX_SHOWN])
        return super().to_internal_value(data)


class Flag(serializers.BooleanField):
    """A boolean."""

    def to_internal_value(self, data: Any) -> bool:
        """Reject other spellings of true and false."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return bool(data)


class Whole(serializers.IntegerField):
    """An integer that fits a column."""

    def __init__(self, **options: Any) -> None:
        most = min(options.pop("max_value", None) or MAX_INTEGER, MAX_INTEGER)
        super().__init__(max_value=most, **options)

    def to_internal_value(self, data: Any) -> int:
        """Reject strings and fractions; 1.0 is an integer."""
        if isinstance(data, bool) or not isinstance(data, int | float) or data != data // 1:
            self.fail("invalid")
        return int(data)


class Number(serializers.FloatField):
    """A number."""

    def to_internal_value(self, data: Any) -> float:
        """Reject strings."""
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return float(data)


class Moment(serializers.DateTimeField):
    """A date and time with a UTC offset (RFC 3339)."""

    def to_internal_value(self, value: Any) -> datetime:
        """Reject dates, numbers, and times without an offset."""
        try:
            moment = parse_datetime(value) if isinstance(value, str) else None
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise serializers.ValidationError("Must be a time with an offset, such as 2026-01-31T12:00:00Z.")
        result: datetime = super().to_internal_value(moment)
        return result


class Id(serializers.UUIDField):
    """A UUID in its canonical form."""

    def to_internal_value(self, data: Any) -> UUID:
        """Reject other forms."""
        if not isinstance(data, str) or not re.fullmatch(UUID_TEXT, data):
            self.fail("invalid", value=data)
        return UUID(data)


class BoundedJson(serializers.JSONField):
    """A JSON value of at most `max_bytes`, in compact form."""

    def __init__(self, *, max_bytes: int = MAX_JSON_BYTES, **options: Any) -> None:
        super().__init__(**options)
        self.max_bytes = max_bytes

    def check_size(self, data: Any) -> None:
        """Raise ValidationError for a value that is too large."""
        if fault := json_size_fault(data, self.max_bytes):
            raise serializers.ValidationError(fault)


@extend_schema_field({"type": "object", "additionalProperties": {}})
class JsonObject(BoundedJson):
    """A JSON object."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Reject other values."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("Must be a JSON object.")
        self.check_size(data)
        return data


@extend_schema_field({"type": "array", "items": {"type": "object", "additionalProperties": {}}})
class JsonObjects(BoundedJson):
    """A list of JSON objects."""

    def to_internal_value(self, data: Any) -> list[dict[str, Any]]:
        """Reject other values."""
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise serializers.ValidationError("Must be a list of JSON objects.")
        self.check_size(data)
        return data


@extend_schema_field({"type": "array", "items": {"type": "string"}})
class Texts(BoundedJson):
    """A list of strings."""

    def to_internal_value(self, data: Any) -> list[str]:
        """Reject other values."""
        if not isinstance(data, list) or not all(isinstance(entry, str) for entry in data):
            raise serializers.ValidationError("Must be a list of strings.")
        self.check_size(data)
        return data


# --- Query parameters, where every value is a string ----------------------------------------------------------------


class FlagParameter(serializers.BooleanField):
    """`true` or `false`."""

    def to_internal_value(self, data: Any) -> bool:
        """Reject other spellings."""
        if data not in {"true", "false"}:
            raise serializers.ValidationError("Must be true or false.")
        return bool(data == "true")


class WholeParameter(serializers.IntegerField):
    """An integer in decimal digits."""

    def to_internal_value(self, data: Any) -> int:
        """Reject other spellings."""
        if not NUMBER_TEXT.fullmatch(data):
            self.fail("invalid")
        return int(data)
