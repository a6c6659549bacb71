"""The page of a tool that code declares."""

from typing import Any

from django.core.exceptions import ValidationError

from tools_app.catalog.admin.base import Fieldsets
from tools_app.catalog.admin.tool_pages import ALIAS_FIELDS, DECLARED, AliasForm, ToolPage, settings_page
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.models import Tool
from tools_app.web.admin.fields import TOOL_LIMITS


class PythonToolForm(AliasForm):
    """The settings of a tool function that are not defined by its code."""

    class Meta:
        model = Tool
        fields = ("enabled", *TOOL_LIMITS, *ALIAS_FIELDS, *SHAPING_FIELDS)

    def clean(self) -> dict[str, Any] | None:
        """Reject a tool that cannot run. Raises ValidationError."""
        try:
            python.registered(self.instance.config.get("function", ""))
        except python.UnknownFunction as problem:
            raise ValidationError(
                f"No installed app registers the function {problem} any more. Disable this tool in the list of tools,"
                " or delete it."
            ) from problem
        return super().clean()


class PythonToolPage(ToolPage):
    """Functions are added on a page of their own (`add_python_tools`)."""

    form = PythonToolForm
    readonly = ("name", *DECLARED)

    def fieldsets(self, _tool: Tool | None) -> Fieldsets:
        """Return the settings, and what the code declares."""
        return settings_page("Declared in code", ("config_json", *DECLARED), "Declared by the function's code.")


PAGE = PythonToolPage()
