"""Validation of tools, resources and prompts that users write, by field.

Errors that a field's own validators find are left to Django's `clean_fields`. Rows of code have only one possible
error: a function that no installed app registers.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tools_app.catalog import prompt_functions as code_prompts
from tools_app.catalog import resource_functions as code_resources
from tools_app.catalog.kinds.base import kind_of
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.validation import resources, shapes
from tools_app.catalog.validation.mime_types import mime_type_fault
from tools_app.catalog.validation.reserved import reserved_fault
from tools_app.catalog.validation.shapes import check_icons
from tools_app.catalog.validation.sizes import size_faults
from tools_app.models import Prompt, PromptKind, Resource, ResourceKind, Tool
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
    """Return the errors of a tool."""
    if fault := reserved_fault(tool.tenant, tool.name, tool.pk):
        return {"name": [fault]}
    return _by_field(kind_of(tool.kind).faults(tool))


def resource_faults(resource: Resource) -> Faults:
    """Return the errors of a resource."""
    if resource.kind == ResourceKind.UPSTREAM:
        return {}
    if resource.kind == ResourceKind.PYTHON:
        return _by_field(function_faults(resource, code_resources.all_registered()))
    return _by_field(_written_resource(resource))


def prompt_faults(prompt: Prompt) -> Faults:
    """Return the errors of a prompt."""
    if prompt.kind == PromptKind.UPSTREAM:
        return {}
    if prompt.kind == PromptKind.PYTHON:
        return _by_field(function_faults(prompt, code_prompts.all_registered()))
    return _by_field(_written_prompt(prompt))


def _by_field(found: Found) -> Faults:
    faults: Faults = {}
    for field, message in found:
        faults.setdefault(field, []).append(message)
    return faults


def function_faults(row: Tool | Resource | Prompt, registered: Any) -> Found:
    """Yield the error of a row of code whose function no installed app registers."""
    name = row.config.get("function", "")
    if name not in registered:
        yield "function", f"No installed app registers {name!r}. Check that its app is in MCPHUB_APPS."


def described_faults(tool: Tool) -> Found:
    """Yield the errors of what clients see of a tool that an admin describes."""
    yield from size_faults(tool)
    yield from _json("input_schema", tool.input_schema, dict, check_tool_arguments)
    if tool.output_schema is not None:
        yield from _json("output_schema", tool.output_schema, dict, check_schema)
    yield from _json("annotations", tool.annotations, dict, check_tool_annotations)
    yield from _json("icons", tool.icons, list, check_icons)


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


def check_tool_annotations(annotations: dict[str, Any]) -> list[SchemaProblem]:
    """Return the errors of a tool's annotations (tools, §Tool): a title, and boolean hints."""
    known = {**dict.fromkeys(HINTS, bool), "title": str}
    faults = {bool: "must be true or false.", str: "must be a string."}
    unknown = f"is not an annotation. Known annotations: {', '.join(HINTS)} and title."
    return [
        SchemaProblem((name,), faults[known[name]] if name in known else unknown)
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
