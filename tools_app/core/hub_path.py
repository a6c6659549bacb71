"""The hubs that a request has passed, so that hubs which call each other do not do so in a circle.

Each hub adds its identifier to a header of the requests that it sends to upstreams, and refuses those that bear it.
"""

import hmac
import re
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

from django.conf import settings

HEADER: Final = "x-mcphub-path"
# A longer chain of hubs is a mistake too.
MAX_HUBS: Final = 8
_IDENTIFIERS: Final = re.compile(r"[0-9a-f]{16}(?:,[0-9a-f]{16}){0,7}")

_passed: ContextVar[str] = ContextVar("hubs_passed", default="")


class LoopDetected(ValueError):
    """The request came through this hub before, or through too many hubs. The message is for the caller."""


def check(header: str) -> None:
    """Refuse a request that has passed this hub or too many others. Raises LoopDetected."""
    if not _IDENTIFIERS.fullmatch(header):
        raise LoopDetected(f"The header {HEADER} is invalid, or names more than {MAX_HUBS} hubs.")
    hubs = header.split(",")
    if _hub_id(settings.SECRET_KEY) in hubs:
        raise LoopDetected("This request has already passed this hub: the URL of the upstream leads back to it.")
    if len(hubs) >= MAX_HUBS:
        raise LoopDetected(f"This request has passed {MAX_HUBS} hubs, which is the limit.")


def enter(header: str) -> None:
    """Note the header of the request that this task handles, for those that it causes. The caller has checked it."""
    _passed.set(header)


def outgoing() -> str:
    """Return the header of a request to an upstream."""
    passed = _passed.get()
    hub_id = _hub_id(settings.SECRET_KEY)
    return f"{passed},{hub_id}" if passed else hub_id


@lru_cache(maxsize=4)
def _hub_id(secret: str) -> str:
    """Return this hub's identifier: the same in all of its processes, and nothing that reveals the secret."""
    return hmac.digest(secret.encode(), b"mcphub hub path", "sha256").hex()[:16]
