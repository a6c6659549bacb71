"""Limits on failed logins, counted in all processes together, against password guessing.

An address gets more attempts than a person needs, and a name as many from all addresses together, which also slows
down distributed guessing. A successful login does not count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from django.core.exceptions import ValidationError

from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.access.principal import rate_limit_key
from tools_app.models.ids import new_id

WAIT_SECONDS: Final = 300.0
MAX_OF_ADDRESS: Final = 20
MAX_OF_NAME: Final = 50


class TooManyAttempts(Exception):
    """Too many recent login attempts from this address or with this name."""


@contextmanager
def attempt(name: str, address: str) -> Iterator[None]:
    """Count a login attempt for WAIT_SECONDS if the block raises ValidationError.

    Raises TooManyAttempts before the block runs.
    """
    # A name is user input: of any length, and perhaps the password.
    digest = sha256(name.casefold().encode(errors="replace")).hexdigest()
    places = [
        ConcurrencyLimit("address", "logins", MAX_OF_ADDRESS, f"logins:address:{rate_limit_key(address)}"),
        ConcurrencyLimit("name", "logins", MAX_OF_NAME, f"logins:name:{digest}"),
    ]
    id = str(new_id())
    if limits.acquire_here(places, id, WAIT_SECONDS) is not None:
        raise TooManyAttempts
    failed = False
    try:
        yield
    except ValidationError:
        failed = True
        raise
    finally:
        if not failed:
            limits.release_of([place.key for place in places], id)
