"""All that can be wrong with a tool, a resource or a prompt that is written by people, by field.

What a field's own validators find is not looked for here: Django's `clean_fields` does that. Rows of code have
nothing that could be wrong, beside naming a function that no installed app registers any more.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tools_app.execution.checks import prompts, resources, tools
from tools_app.execution.checks.icons import check_icons
from tools_app.execution.kinds import python
from tools_app.execution.offers import prompts as code_prompts
from tools_app.execution.offers import resources as code_resources
from tools_app.models import Prompt, PromptKind, Resource, ResourceKind, Tool, ToolKind
from tools_app.protocol.authoring_schema import SchemaProblem, check_schema

Faults = dict[str, list[str]]
Found = Iterator[tuple[str, str]]


def tool_faults(tool: Tool) -> Faults:
    """What is wrong with a tool."""
    return _by_field(_function(tool, python.all_registered()) if tool.kind == ToolKind.PYTHON else _http_tool(tool))


def resource_faults(resource: Resource) -> Faults:
    """What is wrong with a resource."""
    if resource.kind == ResourceKind.PYTHON:
        return _by_field(_function(resource, code_resources.all_registered()))
    return _by_field(_written_resource(resource))


def prompt_faults(prompt: Prompt) -> Faults:
    """What is wrong with a prompt."""
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
        yield "function", f"No installed app registers {name!r}. Is its app in MCPHUB_APPS?"


def _http_tool(tool: Tool) -> Found:
    unsound = list(_json("input_schema", tool.input_schema, dict, tools.check_arguments))
    yield from unsound
    if tool.output_schema is not None:
        yield from _json("output_schema", tool.output_schema, dict, check_schema)
    yield from _json("annotations", tool.annotations, dict, tools.check_annotations)
    yield from _json("icons", tool.icons, list, check_icons)
    # What is no schema names no arguments with which the request could be compared.
    problem = tools.check_request(tool.config, {} if unsound else tool.input_schema)
    if problem is not None and problem.field == "input_schema":
        if not unsound:
            yield problem.field, problem.message
    elif problem is not None:
        yield f"config.{problem.field}", problem.message


def _written_resource(resource: Resource) -> Found:
    is_request = resource.kind == ResourceKind.HTTP
    uri_fault = resources.uri_fault(resource.uri, template=is_request)
    if uri_fault:
        yield "uri", uri_fault
    if fault := resources.mime_type_fault(resource.mime_type):
        yield "mime_type", fault
    yield from _json("annotations", resource.annotations, dict, resources.check_annotations)
    yield from _json("icons", resource.icons, list, check_icons)
    if resource.kind == ResourceKind.TEXT and (fault := resources.text_fault(resource.text, resource.uri)):
        yield "text", fault
    if resource.kind == ResourceKind.FILE and (fault := resources.file_fault(len(resource.blob))):
        yield "file", fault
    if is_request:
        uri = None if uri_fault else resource.uri
        yield from _json("config", resource.config, dict, lambda config: resources.check_request(config, uri))


def _written_prompt(prompt: Prompt) -> Found:
    yield from _json("arguments", prompt.arguments, list, prompts.check_arguments)
    yield from _json("icons", prompt.icons, list, check_icons)
    names = prompts.names_of(prompt.arguments) if isinstance(prompt.arguments, list) else None
    yield from _json("messages", prompt.messages, list, lambda messages: prompts.check_messages(messages, names))
    if prompt.messages == []:
        yield "messages", "Write at least one message."


def _json(field: str, value: Any, kind: type, check: Callable[[Any], list[SchemaProblem]]) -> Found:
    if not isinstance(value, kind):
        yield field, "Write an object, such as {}." if kind is dict else "Write a list, such as []."
        return
    for problem in check(value):
        yield field, str(problem) if problem.path else problem.message
