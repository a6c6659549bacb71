"""Validation of tools, resources and prompts that users write, by field.

Errors that a field's own validators find are left to Django's `clean_fields`. Rows of code have only one possible
error: a function that no installed app registers.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tools_app.catalog import prompt_functions as code_prompts
from tools_app.catalog import resource_functions as code_resources
from tools_app.catalog.kinds.http import runner as http
from tools_app.catalog.kinds.openapi.config import parse_operation
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.validation import resources, shapes
from tools_app.catalog.validation.mime_types import mime_type_fault
from tools_app.catalog.validation.reserved import reserved_fault
from tools_app.catalog.validation.shapes import check_icons
from tools_app.catalog.validation.sizes import size_faults
from tools_app.models import Prompt, PromptKind, Resource, ResourceKind, Tool, ToolKind
from tools_app.protocol.authoring_schema import SchemaProblem, check_input_schema, check_schema
from tools_app.protocol.content import HINTS
from tools_app.protocol.mirrored import InvalidMirror
from tools_app.protocol.schema_keywords import Path

Faults = dict[str, list[str]]
Found = Iterator[tuple[str, str]]


def faults_of(row: Tool | Resource | Prompt) -> Faults:
    """Return the errors of a row."""
    if isinstance(row, Tool):
        return tool_faults(row)
    return resource_faults(row) if isinstance(row, Resource) else prompt_faults(row)


def tool_faults(tool: Tool) -> Faults:
    """Return the errors of a tool. That of an upstream was checked when it was accepted."""
    if fault := reserved_fault(tool.tenant, tool.name, tool.pk):
        return {"name": [fault]}
    match tool.kind:
        case ToolKind.UPSTREAM:
            return {}
        case ToolKind.PYTHON:
            return _by_field(_function(tool, python.all_registered()))
        case ToolKind.HTTP:
            return _by_field(_http_tool(tool))
    return _by_field(_operation(tool))


def resource_faults(resource: Resource) -> Faults:
    """Return the errors of a resource."""
    if resource.kind == ResourceKind.UPSTREAM:
        return {}
    if resource.kind == ResourceKind.PYTHON:
        return _by_field(_function(resource, code_resources.all_registered()))
    return _by_field(_written_resource(resource))


def prompt_faults(prompt: Prompt) -> Faults:
    """Return the errors of a prompt."""
    if prompt.kind == PromptKind.UPSTREAM:
        return {}
    if prompt.kind == PromptKind.PYTHON:
        return _by_field(_function(prompt, code_prompts.all_registered()))
    return _by_field(_written_prompt(prompt))


def _by_field(found: Found) -> Faults:
    faults: Faults = {}
    for field, message in found:
        faults.setdefault(field, []).append(message)
    return faults


def _function(row: Tool | Resource | Prompt, registered: Any) -> Found:
    name = row.config.get("function", "")
    if name not in registered:
        yield "function", f"No installed app registers {name!r}. Check that its app is in MCPHUB_APPS."


def _operation(tool: Tool) -> Found:
    """Yield the errors of an operation of an API source, whose request the source's document describes."""
    if tool.source is None or tool.source.tenant_id != tool.tenant_id:
        yield "kind", "Operations belong to an API source of this tenant. Add the source, and import them from it."
        return
    yield from _described(tool)
    try:
        parse_operation(tool.config)
    except http.ConfigProblem as problem:
        yield f"config.{problem.field}", problem.message


def _described(tool: Tool) -> Found:
    """Yield the errors of what clients see of a tool."""
    yield from size_faults(tool)
    yield from _json("input_schema", tool.input_schema, dict, check_tool_arguments)
    if tool.output_schema is not None:
        yield from _json("output_schema", tool.output_schema, dict, check_schema)
    yield from _json("annotations", tool.annotations, dict, check_tool_annotations)
    yield from _json("icons", tool.icons, list, check_icons)


def _http_tool(tool: Tool) -> Found:
    found = list(_described(tool))
    yield from found
    unsound = any(field == "input_schema" for field, _ in found)
    # An invalid schema has no argument names to compare with the request.
    problem = check_tool_request(tool.config, {} if unsound else tool.input_schema)
    if problem is not None and problem.field == "input_schema":
        if not unsound:
            yield problem.field, problem.message
    elif problem is not None:
        yield f"config.{problem.field}", problem.message


def _written_resource(resource: Resource) -> Found:
    yield from size_faults(resource)
    is_request = resource.kind == ResourceKind.HTTP
    uri_fault = resources.uri_fault(resource.uri, template=is_request)
    if uri_fault:
        yield "uri", uri_fault
    if fault := mime_type_fault(resource.mime_type):
        yield "mime_type", fault
    yield from _json("annotations", resource.annotations, dict, resources.check_annotations)
    yield from _json("icons", resource.icons, list, check_icons)
    if fault := resources.text_fault(resource.text, resource.uri if resource.kind == ResourceKind.TEXT else ""):
        yield "text", fault
    if resource.kind == ResourceKind.FILE and (fault := resources.file_fault(len(resource.blob))):
        yield "file", fault
    if is_request:
        uri = None if uri_fault else resource.uri
        yield from _json("config", resource.config, dict, lambda config: resources.check_request(config, uri))


def _written_prompt(prompt: Prompt) -> Found:
    yield from size_faults(prompt)
    yield from _json("arguments", prompt.arguments, list, shapes.check_prompt_arguments)
    yield from _json("icons", prompt.icons, list, check_icons)
    names = shapes.names_of(prompt.arguments) if isinstance(prompt.arguments, list) else None
    yield from _json("messages", prompt.messages, list, lambda messages: shapes.check_prompt_messages(messages, names))
    if prompt.messages == []:
        yield "messages", "Enter at least one message."


def _json(field: str, value: Any, kind: type, check: Callable[[Any], list[SchemaProblem]]) -> Found:
    if not isinstance(value, kind):
        yield field, "Enter an object, such as {}." if kind is dict else "Enter a list, such as []."
        return
    for problem in check(value):
        yield field, str(problem) if problem.path else problem.message


# With one of these keywords, a schema may accept arguments that its `properties` do not name.
OPEN_KEYWORDS = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}


def check_tool_annotations(annotations: dict[str, Any]) -> list[SchemaProblem]:
    """Return the errors of a tool's annotations (tools, §Tool): a title, and boolean hints."""
    known = {**dict.fromkeys(HINTS, bool), "title": str}
    return [
        SchemaProblem((name,), _annotation_fault(known.get(name)))
        for name, value in annotations.items()
        if not isinstance(value, known.get(name, ()))
    ]


def check_tool_arguments(schema: Any) -> list[SchemaProblem]:
    """Return the errors of a tool's input schema, header parameters included (2026-07-28, §x-mcp-header)."""
    problems = check_input_schema(schema)
    if problems:
        return problems
    try:
        python.check_header_arguments(schema)
    except InvalidMirror as problem:
        return [SchemaProblem(_place(problem.path, schema), str(problem))]
    return []


def check_tool_request(config: Mapping[str, Any], schema: Mapping[str, Any]) -> http.ConfigProblem | None:
    """Return the errors of a tool's request; placeholders must be arguments of `schema`, which is valid."""
    try:
        parsed = http.parse_config(config)
    except http.ConfigProblem as problem:
        return problem
    missing = http.placeholders(parsed) - schema.get("properties", {}).keys()
    if missing and not OPEN_KEYWORDS & schema.keys():
        names = ", ".join(sorted(missing))
        return http.ConfigProblem("input_schema", f"The request uses arguments that are not in the schema: {names}.")
    return None


def _annotation_fault(kind: type | None) -> str:
    if kind is None:
        return f"is not an annotation. Known annotations: {', '.join(HINTS)} and title."
    return "must be true or false." if kind is bool else "must be a string."


def _place(names: tuple[str, ...], schema: Any) -> Path:
    """Return the path that `names` lead to, where list entries are numbers; as far as it exists."""
    path: list[str | int] = []
    for name in names:
        if isinstance(schema, list):
            schema = schema[int(name)]
            path.append(int(name))
        elif isinstance(schema, dict) and name in schema:
            schema = schema[name]
            path.append(name)
    return tuple(path)
