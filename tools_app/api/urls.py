"""Addresses of the REST API and the health checks."""

from django.urls import URLPattern, path

from tools_app.api import views

urlpatterns: list[URLPattern] = [
    path("healthz", views.Live.as_view(), name="healthz"),
    path("readyz", views.Ready.as_view(), name="readyz"),
]
