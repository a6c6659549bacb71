"""Limits on failed logins, counted in all processes together, against password guessing.

An address gets more attempts than a person needs, and a name as many from all addresses together, which also slows
down distributed guessing. A successful login does not count.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from django.core.exceptions import ValidationError

from tools_app.core.ids import new_id
from tools_app.identity.principal import rate_limit_key
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

WAIT_SECONDS: Final = 300.0
MAX_OF_ADDRESS: Final = 20
MAX_OF_NAME: Final = 50


class TooManyAttempts(Exception):
    """Too many recent login attempts from this address or with this name."""


@contextmanager
def attempt(name: str, address: str, limits_of_name: Sequence[tuple[int, float]] = ()) -> Iterator[None]:
    """Count a login attempt if the block raises ValidationError: for WAIT_SECONDS, or as `limits_of_name` says.

    `limits_of_name`: how many failures of the name count in how many seconds, for each of several times. Raises
    TooManyAttempts before the block runs.
    """
    # A name is user input: of any length, and perhaps the password.
    digest = sha256(name.casefold().encode(errors="replace")).hexdigest()
    by_address = ConcurrencyLimit("address", "logins", MAX_OF_ADDRESS, f"logins:address:{rate_limit_key(address)}")
    places = [(by_address, WAIT_SECONDS)]
    for most, seconds in limits_of_name or ((MAX_OF_NAME, WAIT_SECONDS),):
        places.append((ConcurrencyLimit("name", "logins", most, f"logins:name:{digest}:{seconds:g}"), seconds))
    id = str(new_id())
    acquired: list[str] = []
    failed = False
    try:
        for place, seconds in places:
            if limits.acquire_blocking([place], id, seconds) is not None:
                raise TooManyAttempts
            acquired.append(place.key)
        yield
    except ValidationError:
        failed = True
        raise
    finally:
        if not failed:
            limits.release_of(acquired, id)
