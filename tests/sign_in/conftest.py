"""Fixtures of the tests of sign-in."""

from collections.abc import Iterator
from typing import Any

import pytest

from tools_app.access.limits import limits


@pytest.fixture(autouse=True)
def _no_tries_yet(settings: Any) -> Iterator[None]:
    """Reset the counts of sign-in attempts, which are kept in this process."""
    settings.REDIS_URL = ""
    limits.forget_all()
    yield
    limits.forget_all()
