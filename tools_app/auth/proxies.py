"""Whom to believe about a caller's address: the proxies that the operator set up, and nobody else."""

from django.http import HttpRequest

from tools_app.models.config import config

MOST_LETTERS = 45


def address_of(request: HttpRequest) -> str:
    """The address of whoever opens a page."""
    return believed(str(request.META.get("REMOTE_ADDR", "")), request.headers.get("X-Forwarded-For", ""))


def believed(address: str, forwarded_for: str) -> str:
    """The caller's address, as far as the configured proxies vouch for it.

    `address` is the other end of the connection, `forwarded_for` the value of X-Forwarded-For ("" without one).
    """
    if not config.MCPHUB_TRUSTED_PROXIES:
        return address
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
    return hops[-min(config.MCPHUB_TRUSTED_PROXIES, len(hops))][:MOST_LETTERS] if hops else address
