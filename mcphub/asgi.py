"""The ASGI application: MCP paths go straight to their consumers, everything else to Django."""

import os
import sys

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcphub.settings")

# Django must be set up before anything that uses its models is imported.
pages = get_asgi_application()

from tools_app.doctor import configuration  # noqa: E402
from tools_app.transport.routing import mcp_application  # noqa: E402

# The supervisor has already logged them.
if "--supervised" not in sys.argv:
    configuration.log_unknown_variables()
application = mcp_application(pages)
