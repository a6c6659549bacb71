"""The ASGI application: MCP paths go straight to their consumers, everything else to Django."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcphub.settings")

application = get_asgi_application()
