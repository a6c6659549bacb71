"""URLs of the REST API, the health checks and the metrics."""

from django.urls import URLPattern, URLResolver, include, path

from tools_app.api import health
from tools_app.api.metrics import metrics

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.Live.as_view(), name="healthz"),
    path("readyz", health.Ready.as_view(), name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("api/v1/", include("tools_app.api.v1.urls")),
]
