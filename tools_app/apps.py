"""The Django application that hosts MCP tools."""

from django.apps import AppConfig
from django.core.signals import request_finished
from django.utils.module_loading import autodiscover_modules


class ToolsAppConfig(AppConfig):
    """Registers the tools of installed apps."""

    name = "tools_app"
    verbose_name = "MCP hub"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import `mcp_tools.py` of every installed app, which registers its tools, and connect signal handlers."""
        # Models can be imported from here on, not before.
        from tools_app.audit.changes import signals  # noqa: PLC0415
        from tools_app.catalog import versioned  # noqa: PLC0415
        from tools_app.core import database  # noqa: PLC0415
        from tools_app.identity.people import directory  # noqa: PLC0415
        from tools_app.identity.sign_in import accounts  # noqa: PLC0415
        from tools_app.upstreams import forwarding  # noqa: PLC0415
        from tools_app.upstreams.credentials import store  # noqa: PLC0415

        signals.connect()
        directory.connect_signals()
        versioned.connect()
        accounts.connect_signals()
        forwarding.register_forwarder()
        store.connect_signals()
        request_finished.connect(database.close_request_connections, dispatch_uid="connections of a request")
        autodiscover_modules("mcp_tools")
