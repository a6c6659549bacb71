"""The revision of the tool that a call ran, beside the tool as it is today."""

from dataclasses import dataclass, field
from typing import Any

from tools_app.admin import differences
from tools_app.admin.differences import DiffLine
from tools_app.models import Tool, ToolRevision
from tools_app.models.reading import related


@dataclass(frozen=True)
class Revision:
    """A tool's revision, and what differs today. `words` say so where there is no diff to show."""

    number: int
    words: str = ""
    diff: list[DiffLine] = field(default_factory=list)


def revision_of(call: Any) -> Revision | None:
    """The revision that a call ran; None for what has none: a resource, a prompt, a denial."""
    number = call.tool_revision
    if not number or call.tool_id is None:
        return None
    tool: Tool | None = related(call, "tool")
    if tool is None:
        return Revision(number, "The tool was deleted, and its revisions with it.")
    if tool.revision == number:
        return Revision(number, "Unchanged: this is the tool's definition of today.")
    return _compared(number, tool)


def _compared(number: int, tool: Tool) -> Revision:
    wanted = ToolRevision.objects.filter(tool=tool, number__in=(number, tool.revision))
    definitions = dict(wanted.values_list("number", "definition"))
    if not {number, tool.revision} <= definitions.keys():
        return Revision(number, f"Today it is revision {tool.revision}. This one was not kept.")
    diff = differences.lines(definitions[number], definitions[tool.revision])
    same = "" if diff else f"Today it is revision {tool.revision}, which says the same."
    return Revision(number, same or f"What changed until revision {tool.revision}, which is today's:", diff)
