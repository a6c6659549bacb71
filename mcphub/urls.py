"""Pages served by Django: the admin and the health checks. The MCP paths are routed in `mcphub.asgi`."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("", include("tools_app.api.urls")),
]
