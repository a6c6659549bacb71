"""Fixtures that start web services for HTTP tools."""

from tests.web_services import call, certified, context, http, serve

__all__ = ["call", "certified", "context", "http", "serve"]
