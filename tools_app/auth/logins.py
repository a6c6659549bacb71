"""Logins that failed, counted in all processes together: whoever guesses passwords has to wait.

An address gets more tries than a person needs, and a name as many from all addresses together, so that not even many
addresses guess quickly. A login that succeeds counts for nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from django.core.exceptions import ValidationError

from tools_app.auth import limits
from tools_app.auth.allowance import Places
from tools_app.auth.proxies import counted_as
from tools_app.models.ids import new_id

WAIT_SECONDS: Final = 300.0
MOST_OF_ADDRESS: Final = 20
MOST_OF_NAME: Final = 50


class TooManyTries(Exception):
    """Too many logins failed lately, of this address or with this name."""


@contextmanager
def attempt(name: str, address: str) -> Iterator[None]:
    """A try to log in, which counts for WAIT_SECONDS if the block raises ValidationError.

    Raises TooManyTries before it begins.
    """
    # A name is what somebody typed: as long as they like, and perhaps the password.
    digest = sha256(name.casefold().encode(errors="replace")).hexdigest()
    places = [
        Places("address", "logins", MOST_OF_ADDRESS, f"logins:address:{counted_as(address)}"),
        Places("name", "logins", MOST_OF_NAME, f"logins:name:{digest}"),
    ]
    id = str(new_id())
    if limits.hold_here(places, id, WAIT_SECONDS) is not None:
        raise TooManyTries
    failed = False
    try:
        yield
    except ValidationError:
        failed = True
        raise
    finally:
        if not failed:
            limits.let_go_of([place.key for place in places], id)
