"""Fixtures of the tests of pages of upstreams."""

from tests.pages import _no_static_files, as_, page, people

__all__ = ["_no_static_files", "as_", "page", "people"]
