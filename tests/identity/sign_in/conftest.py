"""Fixtures of the tests of sign-in."""

import pytest


@pytest.fixture(autouse=True)
def _no_tries_yet(no_tries_yet: None) -> None:
    """Reset the counts of sign-in attempts for each test."""
