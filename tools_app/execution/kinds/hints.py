"""Type hints as JSON sees them: their schemas, and whether a value must be converted between the two."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import BaseMetadata
from django.core.exceptions import ImproperlyConfigured
from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

UNIONS = (Union, UnionType)

# `int` is not among them: JSON Schema counts 2.0 as an integer, which Python code must not meet as a float.
_JSON_TYPES = (str, float, bool, NoneType, Any)
_JSON_LITERALS = (str, int, bool, NoneType)


class QuietJsonSchema(GenerateJsonSchema):
    """JSON Schema 2020-12 without the titles that only repeat a field's or a class's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _without_class_title(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _without_class_title(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _without_class_title(super().typed_dict_schema(schema), schema.get("cls"))

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        return _without_class_title(super().enum_schema(schema), schema["cls"])


def is_plain(hint: Any) -> bool:
    """Whether the JSON value that fits the hint's schema is already the value that the hint asks for."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return is_plain(arguments[0]) and all(isinstance(note, FieldInfo | BaseMetadata) for note in arguments[1:])
    if origin is Literal:
        return all(type(value) in _JSON_LITERALS for value in arguments)
    if origin in (list, dict, *UNIONS):
        return all(is_plain(argument) for argument in arguments)
    return hint in _JSON_TYPES or hint in (list, dict)


def adapter_for(hint: Any) -> TypeAdapter[Any]:
    """The converter between JSON values and `hint`. Raises pydantic's errors, see `refusing`."""
    return TypeAdapter(hint)


@contextmanager
def refusing(place: str) -> Iterator[None]:
    """Turn what pydantic says of a hint that has no JSON form into ImproperlyConfigured that names `place`."""
    try:
        yield
    except (PydanticUserError, PydanticUndefinedAnnotation) as problem:
        raise ImproperlyConfigured(f"{place}: {problem.message}") from problem


def _without_class_title(schema: JsonSchemaValue, cls: type[Any] | None) -> JsonSchemaValue:
    if cls is not None and schema.get("title") == cls.__name__:
        del schema["title"]
    return schema
