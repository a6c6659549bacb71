"""Pages served by Django: the admin and the health checks. The MCP paths are routed in `mcphub.asgi`."""

from django.urls import include, path
from django.views.generic import RedirectView

from tools_app.admin.base.site import site
from tools_app.admin.people import invitation_views

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", site.urls),
    path("invitations/<str:token>/", invitation_views.page, name="invitation"),
    path("", include("tools_app.api.urls")),
]
