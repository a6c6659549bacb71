"""Pages served by Django: the admin and the health checks. The MCP paths are routed in `mcphub.asgi`."""

from django.urls import include, path
from django.views.generic import RedirectView

from tools_app.admin import accepting
from tools_app.admin.site import site

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", site.urls),
    path("invitations/<str:token>/", accepting.page, name="invitation"),
    path("", include("tools_app.api.urls")),
]
