"""How an outgoing request fails: a text for the model, and a cause for the auditor."""

import ssl
from collections.abc import Iterator
from ipaddress import ip_address

import httpcore

from tools_app.execution.results import ToolError

# What httpcore raises; its exceptions have no common base.
TRANSPORT_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    OSError,
)


class RequestFailed(ToolError):
    """The service gave no usable answer. `cause` may name addresses and stays in the hub."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause


class Unresolved(Exception):
    """A host name has no address."""


class AddressRefused(Exception):
    """A host has an address that the hub does not call; the message names both."""


def host_label(host: str) -> str:
    """How an error calls a host: by its name, but an address stays in the hub."""
    try:
        ip_address(host)
    except ValueError:
        return host
    return "the service"


def explained(error: Exception, host: str) -> RequestFailed:
    """What to tell about an error of the network or of the guard."""
    label = host_label(host)
    cause = " <- ".join(f"{type(link).__name__}: {link}" for link in _chain(error))
    if isinstance(error, AddressRefused):
        return RequestFailed(f"{label} resolves to an address that this hub does not call", cause)
    if isinstance(error, Unresolved | httpcore.ConnectError | httpcore.ConnectTimeout):
        return RequestFailed(f"could not reach {label}: {_why_unreachable(error)}", cause)
    return RequestFailed(_why_broken(error, label), cause)


def _why_unreachable(error: Exception) -> str:
    links = list(_chain(error))
    if isinstance(error, Unresolved):
        return "its name has no address"
    if isinstance(error, httpcore.ConnectTimeout):
        return "it did not accept the connection in time"
    if any(isinstance(link, ConnectionRefusedError) for link in links):
        return "connection refused"
    if any(isinstance(link, ssl.SSLCertVerificationError) for link in links):
        return "its certificate is not trusted"
    return "TLS failed" if any(isinstance(link, ssl.SSLError) for link in links) else "no connection"


def _why_broken(error: Exception, label: str) -> str:
    if isinstance(error, httpcore.TimeoutException):
        return f"{label} did not answer in time"
    if isinstance(error, httpcore.RemoteProtocolError):
        return f"{label} gave no whole HTTP answer"
    return f"the connection to {label} broke"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
