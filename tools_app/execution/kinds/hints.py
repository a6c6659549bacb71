"""Type hints as JSON sees them: their schemas, and whether a value must be converted between the two."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import BaseMetadata
from django.core.exceptions import ImproperlyConfigured
from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

UNIONS = (Union, UnionType)

# `int` is not among them: JSON Schema counts 2.0 as an integer, which Python code must not meet as a float.
_JSON_TYPES = (str, float, bool, NoneType, Any)
_JSON_LITERALS = (str, int, bool, NoneType)


class QuietJsonSchema(GenerateJsonSchema):
    """JSON Schema 2020-12 without the titles that only repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's hook
        """Never: a title that somebody wrote does not come this way."""
        return False


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


def without_class_titles(schema: dict[str, Any], root: str = "") -> dict[str, Any]:
    """Drop the titles that only repeat a class's name, from the definitions and from a schema of class `root`."""
    definitions = {name: _untitled(inner, name) for name, inner in schema.get("$defs", {}).items()}
    return _untitled(schema, root) | ({"$defs": definitions} if definitions else {})


@contextmanager
def refusing(place: str) -> Iterator[None]:
    """Turn what pydantic says of a hint that has no JSON form into ImproperlyConfigured that names `place`."""
    try:
        yield
    except (PydanticUserError, PydanticUndefinedAnnotation) as problem:
        raise ImproperlyConfigured(f"{place}: {problem.message}") from problem


def _untitled(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if (key, value) != ("title", name)}
