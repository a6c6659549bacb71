"""Which clients the members of a tenant may connect: its decisions by host."""

from typing import Final

from django.core.exceptions import ValidationError

from tools_app.core.urls import LOCALHOST, is_loopback_host, split_url
from tools_app.identity.oauth import devices
from tools_app.identity.patterns import matches
from tools_app.models import ClientDecision, ClientPolicy, ClientSource, OAuthClient, Tenant

MAX_POLICIES: Final = 200
_STRICTNESS: Final = (ClientDecision.ALLOW, ClientDecision.ASK, ClientDecision.DENY)


def check_room(tenant: Tenant) -> None:
    """Raise ValidationError if a tenant has as many policies as it may have."""
    if ClientPolicy.objects.filter(tenant=tenant).count() >= MAX_POLICIES:
        raise ValidationError(f"A tenant has at most {MAX_POLICIES} client policies. Use * in a host.")


def host_of(client: OAuthClient, redirect_uri: str) -> str:
    """Return what a policy names a client by: its verified host, else where it returns to, without a port.

    One spelling for one host: in lower case, without the dot at the end of a complete name, and localhost for every
    address of the person's own computer.
    """
    return _canonical(_literal_host(client, redirect_uri))


def decision_on(tenant: Tenant, client: OAuthClient, redirect_uri: str) -> ClientDecision:
    """Return what a tenant decided about a client. The most specific policy counts; without one, it is allowed.

    A service client is allowed by the admin who made it, and a workload by the rules of its issuer. A policy for
    `device:` also counts for clients with a verified host that sign in on a device: the stricter one does.
    """
    if client.source in (ClientSource.SERVICE, ClientSource.WORKLOAD):
        return ClientDecision.ALLOW
    host, literal = host_of(client, redirect_uri), _literal_host(client, redirect_uri)
    every = list(ClientPolicy.objects.filter(tenant=tenant))
    rows = [row for row in every if matches(host, [_canonical(row.host)]) or matches(literal, [row.host])]

    def specificity(row: ClientPolicy) -> tuple[bool, int, int]:
        named = _canonical(row.host)
        # The strictest if two name the same host.
        return "*" not in named, len(named), _STRICTNESS.index(ClientDecision(row.decision))

    decisions = [ClientDecision(max(rows, key=specificity).decision)] if rows else [ClientDecision.ALLOW]
    if redirect_uri == devices.REDIRECT:
        decisions += [ClientDecision(row.decision) for row in every if row.host == devices.REDIRECT]
    return max(decisions, key=_STRICTNESS.index)


def _literal_host(client: OAuthClient, redirect_uri: str) -> str:
    parts = split_url(client.client_id if client.source == ClientSource.DOCUMENT else redirect_uri)
    if parts is None:
        return ""
    if parts.scheme not in ("http", "https"):
        return f"{parts.scheme}:"
    host = parts.host.rstrip(".")
    return f"[{host}]" if ":" in host else host


def _canonical(host: str) -> str:
    return LOCALHOST if is_loopback_host(host) else host
