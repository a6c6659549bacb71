"""The definition of a tool in the form of each revision of the specification."""

from typing import Any

from tools_app.catalog.compiled import CompiledTool
from tools_app.models import TaskSupport
from tools_app.protocol import content
from tools_app.protocol.versions import has_annotations, has_icons, has_structured_content, has_tasks, is_modern


def described(tool: CompiledTool, version: str) -> dict[str, Any]:
    """Return a tool in the form of a revision (tools, §Tool)."""
    definition = tool.definition
    body: dict[str, Any] = {"name": definition.name}
    if definition.title and has_structured_content(version):
        body["title"] = definition.title
    body["description"] = definition.description
    body["inputSchema"] = definition.input_schema
    output = definition.output_schema
    # Up to 2025-11-25 it must describe an object.
    if output and has_structured_content(version) and (is_modern(version) or output.get("type") == "object"):
        body["outputSchema"] = definition.output_schema
    if has_annotations(version) and (hints := content.hints(definition.annotations)):
        body["annotations"] = hints
    if has_icons(version) and (icons := content.icons(definition.icons)):
        body["icons"] = icons
    if tool.task != TaskSupport.NEVER and has_tasks(version):
        body["execution"] = {"taskSupport": tool.task.value}
    if definition.meta and has_structured_content(version):
        body["_meta"] = definition.meta
    return body
