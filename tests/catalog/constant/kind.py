"""Tools that answer with a text that an admin writes."""

from collections.abc import Iterator, Mapping
from typing import Any

from tools_app.catalog.kinds.base import Compilation, Implementation, Kind, written
from tools_app.catalog.tool_api.results import ToolResult, text
from tools_app.models import Tool


class ConstantKind(Kind):
    name = "constant"
    file_field, file_type, file_hint = "answer", str, "must be a text."

    def faults(self, tool: Tool) -> Iterator[tuple[str, str]]:
        if not isinstance(tool.config.get("answer"), str):
            yield "config.answer", "Write a text."

    def compile(self, tool: Tool, _compilation: Compilation) -> Implementation:
        async def answer(_arguments: dict[str, Any], _context: Any) -> ToolResult:
            return ToolResult([text(tool.config["answer"])])

        return written(tool, answer)

    def origin(self, _tool: Tool, _config: Mapping[str, Any]) -> str:
        return "a constant"

    def to_file(self, tool: Tool) -> Any:
        return tool.config["answer"]

    def file_config(self, value: Any) -> Mapping[str, Any]:
        return {"answer": value}


KIND = ConstantKind()
