"""The Django application that hosts MCP tools."""

from django.apps import AppConfig


class ToolsAppConfig(AppConfig):
    name = "tools_app"
    verbose_name = "MCP hub"
    default_auto_field = "django.db.models.BigAutoField"
