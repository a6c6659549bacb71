"""Which clients the members of a tenant may connect: its decisions by host."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from tools_app.access.principal import matches
from tools_app.models import ClientDecision, ClientPolicy, ClientSource, OAuthClient, Tenant


def host_of(client: OAuthClient, redirect_uri: str) -> str:
    """Return what a policy names a client by: its verified host, else where it returns to, without a port.

    One spelling for one host: in lower case and without the dot at the end of a complete name.
    """
    parts = urlsplit(client.client_id if client.source == ClientSource.DOCUMENT else redirect_uri)
    if parts.scheme not in ("http", "https"):
        return f"{parts.scheme}:"
    host = (parts.hostname or "").rstrip(".")
    return f"[{host}]" if ":" in host else host


def decision_on(tenant: Tenant, client: OAuthClient, redirect_uri: str) -> ClientDecision:
    """Return what a tenant decided about a client. The most specific policy counts; without one, it is allowed."""
    host = host_of(client, redirect_uri)
    rows = [row for row in ClientPolicy.objects.filter(tenant=tenant) if matches(host, [row.host])]
    return ClientDecision(_most_specific(rows).decision) if rows else ClientDecision.ALLOW


def _most_specific(rows: Iterable[ClientPolicy]) -> ClientPolicy:
    return max(rows, key=lambda row: ("*" not in row.host, len(row.host)))
