"""The ASGI application: MCP paths go straight to their consumers, everything else to Django."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcphub.settings")

# Django must be set up before anything that uses its models is imported.
pages = get_asgi_application()

from tools_app.transport.routing import mcp_application  # noqa: E402

application = mcp_application(pages)
