"""JSON Schema keywords that matter for traversal."""

from collections.abc import Iterator
from typing import Any, Final

Path = tuple[str | int, ...]

# Keywords whose value maps names to schemas, so those names are not keywords.
SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
# Keywords whose value is data and contains no keywords.
DATA: Final = frozenset({"const", "enum", "default", "examples"})
REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def subschemas(schema: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a schema and all its subschemas, each with its path from the root."""
    if isinstance(schema, list):
        for position, entry in enumerate(schema):
            yield from subschemas(entry, (*path, position))
    if not isinstance(schema, dict):
        return
    yield path, schema
    for keyword, value in schema.items():
        if keyword in SCHEMA_MAPS and isinstance(value, dict):
            for name, inner in value.items():
                yield from subschemas(inner, (*path, keyword, name))
        elif keyword not in DATA:
            yield from subschemas(value, (*path, keyword))
