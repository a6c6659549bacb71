"""Fixtures that certify a web service."""

from tests.web_services import certified

__all__ = ["certified"]
