"""Pages served by Django: the admin, the documentation, the REST API and the health checks.

The MCP paths are routed in `mcphub.asgi`.
"""

from django.urls import include, path
from django.views.generic import RedirectView

from tools_app.admin.base.site import site
from tools_app.admin.documentation import views as documentation
from tools_app.admin.people import invitation_views

handler400 = "tools_app.admin.base.errors.bad_request"
handler403 = "tools_app.admin.base.errors.permission_denied"
handler404 = "tools_app.admin.base.errors.page_not_found"
handler500 = "tools_app.admin.base.errors.server_error"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", site.urls),
    path("", include("tools_app.oauth.urls")),
    path("", include("tools_app.sign_in.urls")),
    path("docs/", include(documentation.urls(site))),
    path("invitations/<str:token>/", invitation_views.page, name="invitation"),
    path("", include("tools_app.api.urls")),
]
