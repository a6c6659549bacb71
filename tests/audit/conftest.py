"""Fixtures with certificates for web services."""

from tests.web_services import certified

__all__ = ["certified"]
