"""The estimated cost of tool definitions in a model's context."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

# A rule of thumb for JSON in English. A model's own count differs.
CHARACTERS_OF_A_TOKEN: Final = 4


def tokens_of(definition: Mapping[str, Any]) -> int:
    """Return about how many tokens a definition costs a model in a list of tools."""
    shown = {name: definition.get(name) for name in ("name", "description", "input_schema")}
    if output := definition.get("output_schema"):
        shown["output_schema"] = output
    return len(orjson.dumps(shown, default=str)) // CHARACTERS_OF_A_TOKEN
