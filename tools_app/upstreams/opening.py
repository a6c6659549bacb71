"""Makes the client of an endpoint, with the transport that it asks for."""

import re
from collections.abc import Iterable
from typing import Final

from tools_app.catalog.kinds.upstream.runner import Endpoint
from tools_app.core.config import config
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.models import UpstreamEra, UpstreamTransport
from tools_app.upstreams.client import Client, Listen
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.http import Bounds, HttpTransport
from tools_app.upstreams.legacy_sse import LegacySseTransport
from tools_app.upstreams.questions import Profile, capabilities_of
from tools_app.upstreams.stdio import StdioTransport

# Silence on a connection. Calls and lists have shorter timeouts of their own.
IDLE_SECONDS: Final = 3600.0
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# What a message is larger than the result in it.
MAX_ENVELOPE_BYTES: Final = 64 * 1024


def open_client(endpoint: Endpoint, on_change: Listen, profile: Profile) -> Client:
    """Return an unconnected client that declares the capabilities of `profile`.

    Raises UpstreamFailed for an endpoint that cannot be used.
    """
    capabilities = capabilities_of(profile)
    bounds = Bounds(IDLE_SECONDS, config.MCPHUB_MAX_RESULT_BYTES + MAX_ENVELOPE_BYTES)
    if endpoint.transport == UpstreamTransport.STDIO:
        process = StdioTransport(endpoint, bounds.max_bytes)
        return Client(process, endpoint.era, on_change, capabilities)
    try:
        url = parse_url(endpoint.url)
    except InvalidUrl as problem:
        raise UpstreamFailed(f"The upstream's URL is invalid: {problem}.", sent=False) from problem
    headers, allowed = _checked_headers(endpoint.headers), parse_networks(endpoint.allowed_networks)
    transport = HttpTransport(url, headers, allowed, bounds, endpoint.tenant_id)
    if endpoint.transport == UpstreamTransport.SSE:
        # Its only revision has the handshake.
        return Client(LegacySseTransport(url, transport), UpstreamEra.HANDSHAKE, on_change, capabilities)
    return Client(transport, endpoint.era, on_change, capabilities)


def _checked_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers as they are sent. Raises UpstreamFailed for a value, such as a secret, that no header can have."""
    stripped = {name: value.strip() for name, value in headers}
    for name, value in stripped.items():
        if not _HEADER_VALUE.fullmatch(value):
            raise UpstreamFailed(f"The value of the header {name} cannot be sent.", sent=False)
    return stripped
