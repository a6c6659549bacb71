"""The origin under which the current request reached the hub, for links in what it is answered."""

from contextvars import ContextVar
from typing import Final

from tools_app.core.config import config

# The scheme and the Host of the current request, which was checked against ALLOWED_HOSTS. Empty outside of requests.
origin_received: Final[ContextVar[tuple[str, str]]] = ContextVar("received", default=("", ""))


def current() -> str:
    """Return the scheme, host and port that the client used; "" outside of requests."""
    scheme, host = origin_received.get()
    return f"{'https' if config.SECURE_SSL_REDIRECT else scheme}://{host}" if host else ""
