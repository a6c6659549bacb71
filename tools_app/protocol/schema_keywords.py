"""The keywords of JSON Schema that matter to whoever walks through one."""

from typing import Final

# Keywords whose value maps a name that somebody chose to a schema, so that the name is no keyword.
SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
# Keywords whose value is data, in which nothing is a keyword.
DATA: Final = frozenset({"const", "enum", "default", "examples"})
REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
