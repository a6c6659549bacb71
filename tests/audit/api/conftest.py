"""Fixtures of the tests of the REST API."""

from tests.rest import _fast_and_unthrottled, as_, people, undone
from tests.worlds import acme, globex, worlds

__all__ = ["_fast_and_unthrottled", "acme", "as_", "globex", "people", "undone", "worlds"]
