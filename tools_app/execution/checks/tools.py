"""What can be wrong with an HTTP tool that an admin writes, told with its place. Knows nothing of forms."""

from collections.abc import Mapping
from typing import Any

from tools_app.execution.kinds import http, mirroring
from tools_app.protocol.authoring_schema import Path, SchemaProblem, check_input_schema
from tools_app.protocol.mirrored import BadMirror

# With one of these, a schema may take arguments that its `properties` do not name.
OPEN_KEYWORDS = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def check_annotations(annotations: dict[str, Any]) -> list[SchemaProblem]:
    """The faults of a tool's annotations (tools, §Tool): a title, and hints that are true or false."""
    known = {**dict.fromkeys(HINTS, bool), "title": str}
    return [
        SchemaProblem((name,), _annotation_fault(known.get(name)))
        for name, value in annotations.items()
        if not isinstance(value, known.get(name, ()))
    ]


def check_arguments(schema: Any) -> list[SchemaProblem]:
    """The faults of a tool's input schema, those of its header parameters included (2026-07-28, §x-mcp-header)."""
    problems = check_input_schema(schema)
    if problems:
        return problems
    try:
        mirroring.check(schema)
    except BadMirror as problem:
        return [SchemaProblem(_place(problem.path, schema), str(problem))]
    return []


def check_request(config: Mapping[str, Any], schema: Mapping[str, Any]) -> http.ConfigProblem | None:
    """What is wrong with a tool's request, whose placeholders are arguments that `schema`, a sound one, takes."""
    try:
        parsed = http.parse_config(config)
    except http.ConfigProblem as problem:
        return problem
    missing = http.placeholders(parsed) - schema.get("properties", {}).keys()
    if missing and not OPEN_KEYWORDS & schema.keys():
        names = ", ".join(sorted(missing))
        return http.ConfigProblem("input_schema", f"The request uses what is no property here: {names}.")
    return None


def _annotation_fault(kind: type | None) -> str:
    if kind is None:
        return f"is no annotation. There are {', '.join(HINTS)} and title."
    return "write true or false." if kind is bool else "write a text."


def _place(names: tuple[str, ...], schema: Any) -> Path:
    """The path of what `names` lead to, where entries of lists are numbers; as far as it can be followed."""
    path: list[str | int] = []
    for name in names:
        if isinstance(schema, list):
            schema = schema[int(name)]
            path.append(int(name))
        elif isinstance(schema, dict) and name in schema:
            schema = schema[name]
            path.append(name)
    return tuple(path)
