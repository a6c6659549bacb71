"""The revision of the tool that a call ran, compared with the current tool."""

from dataclasses import dataclass, field, replace
from typing import Any

from tools_app.catalog.revisions import source_of
from tools_app.core import diff as differences
from tools_app.core.diff import DiffLine
from tools_app.core.relations import related
from tools_app.models import Tool, ToolRevision


@dataclass(frozen=True)
class Revision:
    """A tool's revision and its difference from the current one. `words` replaces the diff where there is none.

    `source` is where the tool came from.
    """

    number: int
    words: str = ""
    diff: list[DiffLine] = field(default_factory=list)
    source: str = ""


def revision_of(call: Any) -> Revision | None:
    """Return the revision that a call ran, or None if it has none: a resource, a prompt, a denial."""
    number = call.tool_revision
    if not number or call.tool_id is None:
        return None
    tool: Tool | None = related(call, "tool")
    if tool is None:
        return Revision(number, "The tool and its revisions were deleted.")
    if tool.revision == number:
        found = Revision(number, "Unchanged: this is the current definition of the tool.")
    else:
        found = _compared(number, tool)
    return replace(found, source=source_of(call))


def _compared(number: int, tool: Tool) -> Revision:
    wanted = ToolRevision.objects.filter(tool=tool, number__in=(number, tool.revision))
    definitions = dict(wanted.values_list("number", "definition"))
    if not {number, tool.revision} <= definitions.keys():
        return Revision(number, f"The current revision is {tool.revision}. This one is no longer stored.")
    diff = differences.lines(definitions[number], definitions[tool.revision])
    same = "" if diff else f"The current revision is {tool.revision}, with the same definition."
    return Revision(number, same or f"Changes up to the current revision {tool.revision}:", diff)
