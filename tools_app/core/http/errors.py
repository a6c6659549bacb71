"""Errors of outgoing requests: a message for people and models, and a cause for the audit log."""

import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

import httpcore2

WHO_ALLOWS = "A hub admin can allow it under Tenant > Allowed networks."
NOBODY_ALLOWS = "The hub sends this request to public addresses only, and no setting allows others."


# What httpcore2 raises: no connection, none in time, silence, and what is not HTTP.
NEVER_CONNECTED: Final = (httpcore2.ConnectError, httpcore2.ConnectTimeout)
TRANSPORT_ERRORS: Final = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError)
# What a server sent may be in a message of the parser.
MAX_CAUSE_LENGTH: Final = 300


class RequestFailed(Exception):
    """The service returned no usable response: a message for people and models.

    `cause`, for the audit log, may contain addresses and never leaves the hub.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause


class NameNotResolved(Exception):
    """The host name has no address."""


class AddressBlocked(Exception):
    """The host has an address that the hub refuses; the message names both."""


def host_label(host: str) -> str:
    """Return the name of a host for an error message; addresses are not revealed."""
    try:
        ip_address(host)
    except ValueError:
        return host
    return "the service"


def explain_error(error: Exception, host: str, *, public_only: bool = False) -> RequestFailed:
    """Return the RequestFailed of a network error or a refused address.

    `public_only`: the request belongs to no tenant whose networks an admin could extend.
    """
    label = host_label(host)
    cause = " <- ".join(f"{type(link).__name__}: {link}"[:MAX_CAUSE_LENGTH] for link in _chain(error))
    if isinstance(error, AddressBlocked):
        return RequestFailed(
            f"Cannot call {label}: its address is private or reserved. {NOBODY_ALLOWS if public_only else WHO_ALLOWS}",
            cause,
        )
    if isinstance(error, (NameNotResolved, *NEVER_CONNECTED)):
        return RequestFailed(f"Could not reach {label}: {_why_unreachable(error)}.", cause)
    return RequestFailed(_why_broken(error, label), cause)


def _why_unreachable(error: Exception) -> str:
    links = list(_chain(error))
    if isinstance(error, NameNotResolved):
        return "the host name cannot be resolved"
    if isinstance(error, httpcore2.ConnectTimeout):
        return "the connection timed out"
    if any(isinstance(link, ConnectionRefusedError) for link in links):
        return "connection refused"
    if any(isinstance(link, ssl.SSLCertVerificationError) for link in links):
        return "the certificate is not trusted"
    return "TLS failed" if any(isinstance(link, ssl.SSLError) for link in links) else "connection failed"


def _why_broken(error: Exception, label: str) -> str:
    if isinstance(error, httpcore2.TimeoutException | TimeoutError):
        return f"The request to {label} timed out."
    if isinstance(error, httpcore2.RemoteProtocolError):
        return f"Incomplete HTTP response from {label}."
    return f"The connection to {label} was interrupted."


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
