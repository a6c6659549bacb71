"""Which clients the members of a tenant may connect: its decisions by host."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from tools_app.access.oauth import devices
from tools_app.access.patterns import matches
from tools_app.models import ClientDecision, ClientPolicy, ClientSource, OAuthClient, Tenant

_STRICTNESS: Final = (ClientDecision.ALLOW, ClientDecision.ASK, ClientDecision.DENY)


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
    """Return what a tenant decided about a client. The most specific policy counts; without one, it is allowed.

    A service client is allowed by the admin who made it, and a workload by the rules of its issuer. A policy for
    `device:` also counts for clients with a verified host that sign in on a device: the stricter one does.
    """
    if client.source in (ClientSource.SERVICE, ClientSource.WORKLOAD):
        return ClientDecision.ALLOW
    host = host_of(client, redirect_uri)
    every = list(ClientPolicy.objects.filter(tenant=tenant))
    rows = [row for row in every if matches(host, [row.host])]
    decisions = [ClientDecision(_most_specific(rows).decision)] if rows else [ClientDecision.ALLOW]
    if redirect_uri == devices.REDIRECT:
        decisions += [ClientDecision(row.decision) for row in every if row.host == devices.REDIRECT]
    return max(decisions, key=_STRICTNESS.index)


def _most_specific(rows: Iterable[ClientPolicy]) -> ClientPolicy:
    return max(rows, key=lambda row: ("*" not in row.host, len(row.host)))
