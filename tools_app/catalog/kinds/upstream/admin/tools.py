"""The page of a tool of an upstream."""

from tools_app.catalog.admin.base import Fieldsets
from tools_app.catalog.admin.tool_pages import ALIAS_FIELDS, DECLARED, AliasForm, ToolPage, settings_page
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.models import Tool
from tools_app.web.admin.fields import TOOL_LIMITS


class UpstreamToolForm(AliasForm):
    """The settings of a tool of an upstream, whose definition is reviewed with the upstream."""

    class Meta:
        model = Tool
        fields = ("enabled", "timeout_seconds", *TOOL_LIMITS, *ALIAS_FIELDS, *SHAPING_FIELDS)


class UpstreamToolPage(ToolPage):
    """The settings, and the definition that was accepted."""

    form = UpstreamToolForm
    readonly = ("name", *(name for name in DECLARED if name != "timeout_seconds"))

    def fieldsets(self, _tool: Tool | None) -> Fieldsets:
        """Return the settings, the time limit among them, and the accepted definition."""
        fields = ("config_json", *(name for name in DECLARED if name not in {"timeout_seconds", "background", "task"}))
        description = "Defined by the upstream, and accepted by an admin."
        return settings_page("Accepted definition", fields, description, own=("timeout_seconds",))


PAGE = UpstreamToolPage()
