"""The page of a tool for an operation of an API source."""

from tools_app.catalog.admin.base import Fieldsets
from tools_app.catalog.admin.tool_pages import (
    ABOUT_SHAPING,
    ALIAS_FIELDS,
    SHAPING,
    ToolPage,
    WrittenToolForm,
)
from tools_app.catalog.validation.items import check_tool_arguments
from tools_app.models import Tool
from tools_app.web.admin.fields import TOOL_LIMITS, JsonTextField, limits_fieldset


class OperationToolForm(WrittenToolForm):
    """An operation of an API source, without its request, which the source's document describes."""

    input_schema = JsonTextField(
        check=check_tool_arguments, rows=14, help_text="JSON Schema of the arguments. A refresh keeps what you change."
    )


class OperationToolPage(ToolPage):
    """What clients see can be overridden; operations are imported on the page of their source."""

    form = OperationToolForm
    readonly = ("source_link", "operation")

    def fieldsets(self, _tool: Tool | None) -> Fieldsets:
        """Return the definition, and the request as the document describes it."""
        limits = limits_fieldset(TOOL_LIMITS)
        definition = {
            "description": "The source's document describes the request.",
            "fields": ("source_link", "operation", "config_json"),
        }
        return [
            (None, {"fields": ("tenant", "name", "title", "description", "enabled")}),
            ("Arguments", {"fields": ("input_schema",)}),
            (
                "Advanced",
                {"fields": ("timeout_seconds", "background", "task", "output_schema", "annotations", "icons")},
            ),
            limits,
            (SHAPING, ABOUT_SHAPING),
            ("Search", {"fields": ALIAS_FIELDS}),
            ("Request", definition),
            ("Facts", {"fields": ("kind_label", "revision")}),
        ]


PAGE = OperationToolPage()
