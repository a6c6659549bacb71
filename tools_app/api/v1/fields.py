"""Fields that take what the OpenAPI document says and nothing like it: a number is no text, and "yes" is not true."""

import re
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
NUMBER_TEXT = re.compile(r"-?\d{1,15}", re.ASCII)
# PostgreSQL keeps no more in such a column.
MOST_INTEGER = 2**31 - 1


class Text(serializers.CharField):
    """A text, kept as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        """Refuse numbers, which REST framework would write out."""
        if not isinstance(data, str):
            self.fail("invalid")
        text: str = super().to_internal_value(data)
        return text


class Email(Text, serializers.EmailField):
    """An e-mail address."""


class Choice(serializers.ChoiceField):
    """One of some texts."""

    def to_internal_value(self, data: Any) -> Any:
        """Refuse numbers that look like a choice."""
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return super().to_internal_value(data)


class Flag(serializers.BooleanField):
    """True or false."""

    def to_internal_value(self, data: Any) -> bool:
        """Refuse what only means it."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return bool(data)


class Whole(serializers.IntegerField):
    """A whole number that a column holds."""

    def __init__(self, **options: Any) -> None:
        most = min(options.pop("max_value", None) or MOST_INTEGER, MOST_INTEGER)
        super().__init__(max_value=most, **options)

    def to_internal_value(self, data: Any) -> int:
        """Refuse texts and fractions; 1.0 is whole."""
        if isinstance(data, bool) or not isinstance(data, int | float) or data != data // 1:
            self.fail("invalid")
        return int(data)


class Number(serializers.FloatField):
    """A number."""

    def to_internal_value(self, data: Any) -> float:
        """Refuse texts."""
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return float(data)


class Moment(serializers.DateTimeField):
    """A moment with its offset (RFC 3339)."""

    def to_internal_value(self, value: Any) -> datetime:
        """Refuse days, numbers, and times of an unknown zone."""
        moment = _moment(value)
        if moment is None:
            raise serializers.ValidationError("Write a time with its offset, such as 2026-01-31T12:00:00Z.")
        result: datetime = super().to_internal_value(moment)
        return result


def _moment(value: Any) -> datetime | None:
    try:
        moment = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


class Id(serializers.UUIDField):
    """A UUID in its usual spelling."""

    def to_internal_value(self, data: Any) -> UUID:
        """Refuse other spellings."""
        if not isinstance(data, str) or not UUID_TEXT.fullmatch(data):
            self.fail("invalid", value=data)
        return UUID(data)


@extend_schema_field({"type": "object", "additionalProperties": {}})
class JsonObject(serializers.JSONField):
    """A JSON object."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Refuse other values."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("Write a JSON object.")
        return data


@extend_schema_field({"type": "array", "items": {"type": "object", "additionalProperties": {}}})
class JsonObjects(serializers.JSONField):
    """A list of JSON objects."""

    def to_internal_value(self, data: Any) -> list[dict[str, Any]]:
        """Refuse other values."""
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise serializers.ValidationError("Write a list of JSON objects.")
        return data


@extend_schema_field({"type": "array", "items": {"type": "string"}})
class Texts(serializers.JSONField):
    """A list of texts."""

    def to_internal_value(self, data: Any) -> list[str]:
        """Refuse other values."""
        if not isinstance(data, list) or not all(isinstance(entry, str) for entry in data):
            raise serializers.ValidationError("Write a list of texts.")
        return data


# --- Parameters of addresses, where everything is a text ------------------------------------------------------------


class FlagParameter(serializers.BooleanField):
    """`true` or `false`."""

    def to_internal_value(self, data: Any) -> bool:
        """Refuse other spellings."""
        if data not in {"true", "false"}:
            raise serializers.ValidationError("Write true or false.")
        return bool(data == "true")


class WholeParameter(serializers.IntegerField):
    """A whole number in decimal digits."""

    def to_internal_value(self, data: Any) -> int:
        """Refuse other spellings."""
        if not NUMBER_TEXT.fullmatch(data):
            self.fail("invalid")
        return int(data)
