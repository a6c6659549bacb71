"""What tests of sign-in share."""

from collections.abc import Iterator
from typing import Any

import pytest

from tools_app.access.limits import limits


@pytest.fixture(autouse=True)
def _no_tries_yet(settings: Any) -> Iterator[None]:
    """Nobody has tried to sign in: tries are counted here, where they can be forgotten."""
    settings.REDIS_URL = ""
    limits.forget_all()
    yield
    limits.forget_all()
