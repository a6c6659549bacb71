"""Fixtures of the tests of pages."""

from tests.pages import _no_static_files, as_, page, people
from tests.worlds import acme, globex, worlds

__all__ = ["_no_static_files", "acme", "as_", "globex", "page", "people", "worlds"]
