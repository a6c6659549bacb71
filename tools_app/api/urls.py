"""Addresses of the REST API and the health checks."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
