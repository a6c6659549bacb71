"""Pages served by Django: the admin, the documentation, the REST API and the health checks.

The MCP paths are routed in `mcphub.asgi`.
"""

from django.urls import include, path
from django.views.generic import RedirectView

from tools_app.tenants import views as invitation_views
from tools_app.web.admin.site import site
from tools_app.web.documentation import views as documentation

handler400 = "tools_app.web.admin.errors.bad_request"
handler403 = "tools_app.web.admin.errors.permission_denied"
handler404 = "tools_app.web.admin.errors.page_not_found"
handler500 = "tools_app.web.admin.errors.server_error"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", site.urls),
    path("", include("tools_app.identity.authorization.urls")),
    path("", include("tools_app.identity.sign_in.urls")),
    path("docs/", include(documentation.urls(site))),
    path("invitations/<str:token>/", invitation_views.page, name="invitation"),
    path("", include("tools_app.web.urls")),
]
