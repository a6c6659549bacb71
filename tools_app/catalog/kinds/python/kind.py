"""Tools that functions of installed apps declare."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tools_app.catalog.kinds.base import Compilation, Implementation, Kind, ToolDefinition
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.models import TOOL_SETTINGS
from tools_app.catalog.validation.items import function_faults
from tools_app.models import Tool

IN_CODE = "Declared by the function's code. Remove this field."
UNKNOWN_FUNCTION = {"config": ['Must be {"function": "NAME"} with the name of a registered function.']}
FROM_CODE = (
    "The code declares what a Python tool is, so nothing of this can be brought back here: install the version of its "
    "app that declared it, and run manage.py sync_tools."
)


class PythonKind(Kind):
    """`Tool.config` is `{"function": NAME}`; the code declares everything but the settings of an admin."""

    name = "python"
    config_help = 'For a Python function: `{"function": NAME}`.'
    follows_code = True
    history = FROM_CODE
    file_field, file_type, file_hint = "function", str, "must be the name of a registered function."
    file_settings = TOOL_SETTINGS

    def faults(self, tool: Tool) -> Iterator[tuple[str, str]]:
        """Yield the error of a function that no installed app registers."""
        return function_faults(tool, python.all_registered())

    def request_faults(self, tool: Tool, given: dict[str, Any], _former: Tool | None) -> Mapping[str, Iterable[str]]:
        """Return the error of an unknown function, and of each value that its code decides."""
        return code_faults(tool, given, "name", self.adopt)

    def compile(self, tool: Tool, _compilation: Compilation) -> Implementation:
        """Return the registered function. Raises UnknownFunction."""
        function = python.registered(tool.config.get("function", ""))
        code = function.definition
        definition = ToolDefinition(
            tool.name, code.title, code.description, code.input_schema, code.output_schema, code.annotations, code.icons
        )
        settings = (function.background, function.task, function.timeout_seconds, function.needs_person)
        return Implementation(definition, function.run, *settings)

    def adopt(self, tool: Tool) -> None:
        """Copy what the code declares into the row. Raises UnknownFunction."""
        function = python.registered(tool.config.get("function", ""))
        code = function.definition
        tool.title, tool.description, tool.input_schema = code.title, code.description, dict(code.input_schema)
        tool.output_schema = dict(code.output_schema) if code.output_schema else None
        tool.annotations, tool.icons = dict(code.annotations), list(code.icons)
        tool.background, tool.task = function.background, function.task
        tool.timeout_seconds = function.timeout_seconds

    def restore_problem(self, tool: Tool, definition: Mapping[str, Any]) -> str:
        """Refuse what only another version of the same code can bring back."""
        is_same = tool.kind == definition.get("kind") == self.name and tool.config == definition.get("config")
        return FROM_CODE if is_same else ""

    def origin(self, _tool: Tool, config: Mapping[str, Any]) -> str:
        """Return the name of the function."""
        return f"function {config.get('function')}"

    def to_file(self, tool: Tool) -> str:
        """Return the name of the function."""
        return str(tool.config.get("function", ""))

    def file_config(self, value: Any) -> Mapping[str, Any]:
        """Return the configuration with the name of a function."""
        return {"function": value}


def code_faults(
    row: Any, given: dict[str, Any], named_by: str, adopt: Callable[[Any], None]
) -> Mapping[str, Iterable[str]]:
    """Return what is wrong with a request for a row from code: an unknown function, and values that the code decides.

    Without a configuration, the function has the name of the row, in its field `named_by`. `adopt` copies into the row
    what the code declares, and raises UnknownFunction.
    """
    if not row.config:
        row.config = given["config"] = {"function": getattr(row, named_by)}
    if not isinstance(row.config.get("function", ""), str):
        return UNKNOWN_FUNCTION
    try:
        adopt(row)
    except python.UnknownFunction:
        return UNKNOWN_FUNCTION
    return {name: [IN_CODE] for name, value in given.items() if getattr(row, name) != value}


KIND = PythonKind()
