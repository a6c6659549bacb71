"""URLs of the REST API, the directories of companies (SCIM), the health checks and the metrics."""

from django.urls import URLPattern, URLResolver, include, path

from tools_app.identity.scim.entry import scim
from tools_app.web import health
from tools_app.web.metrics import metrics

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.Live.as_view(), name="healthz"),
    path("readyz", health.Ready.as_view(), name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("scim/v2/<uuid:issuer>/", scim, {"path": ""}, name="scim"),
    path("scim/v2/<uuid:issuer>/<path:path>", scim),
    path("api/v1/", include("tools_app.web.api_urls")),
]
