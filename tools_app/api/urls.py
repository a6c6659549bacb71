"""URLs of the REST API, the directories of companies (SCIM), the health checks and the metrics."""

from django.urls import URLPattern, URLResolver, include, path

from tools_app.api import health
from tools_app.api.metrics import metrics
from tools_app.api.scim.entry import scim

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.Live.as_view(), name="healthz"),
    path("readyz", health.Ready.as_view(), name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("scim/v2/<uuid:issuer>/", scim, {"path": ""}, name="scim"),
    path("scim/v2/<uuid:issuer>/<path:path>", scim),
    path("api/v1/", include("tools_app.api.v1.urls")),
]
