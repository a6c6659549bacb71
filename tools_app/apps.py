"""The Django application that hosts MCP tools."""

from django.apps import AppConfig
from django.core.signals import request_finished
from django.utils.module_loading import autodiscover_modules


class ToolsAppConfig(AppConfig):
    """Finds the tools that installed apps offer."""

    name = "tools_app"
    verbose_name = "MCP hub"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import `mcp_tools.py` of every installed app, which registers the tools it defines; listen to changes."""
        # Models can be imported now, and not before.
        from tools_app.audit import change_signals  # noqa: PLC0415
        from tools_app.models import bridge  # noqa: PLC0415

        change_signals.connect()
        request_finished.connect(bridge.let_go, dispatch_uid="connections of a request")
        autodiscover_modules("mcp_tools")
