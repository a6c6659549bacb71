"""The record of sign-ins: each step of each attempt, with its reason where it failed.

A client and its person's browser come from different addresses, and nothing that they send is the same in all steps. A
step continues the latest attempt of the same client, person, tenant and connection, as far as both are known.
"""

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.http import HttpRequest
from django.utils import timezone

from tools_app.core.ids import new_id
from tools_app.core.sanitize import for_column, is_storable
from tools_app.identity.models.oauth import MAX_CLIENT_ID
from tools_app.identity.oauth import resources
from tools_app.identity.principal import client_ip_of, rate_limit_key
from tools_app.models import ClientSource, Connection, OAuthClient, SignInEvent, SignInStep, Tenant
from tools_app.tenants import permissions
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

MAX_REASON: Final = 500
MAX_HOST: Final = 255
# On a request, that its refusal was recorded.
_REJECTED: Final = "sign_in_rejected"
WITHIN: Final = timedelta(minutes=10)
MAX_STEPS: Final = 200
# Of strangers: to a tenant, to a tenant from one address, and in total, in a minute.
MAX_OF_STRANGERS: Final = 100
MAX_OF_ADDRESS: Final = 50
MAX_OF_ALL_STRANGERS: Final = 1000
MINUTE: Final = 60.0
# Of a connection whose tokens an issuer signs, in an hour.
MAX_OF_CONNECTION: Final = 10
HOUR: Final = 3600.0
# Attempts of their own.
SINGLE: Final = frozenset({SignInStep.CLIENT_SEEN, SignInStep.REFRESHED, SignInStep.REVOKED, SignInStep.REPLAYED})
# A new attempt, if the one before has come so far.
FIRST: Final = frozenset({SignInStep.CHALLENGED, SignInStep.ASKED})
LAST: Final = frozenset({SignInStep.ISSUED, SignInStep.DENIED, SignInStep.REJECTED, *SINGLE} - {SignInStep.CLIENT_SEEN})


def record(
    request: HttpRequest,
    step: SignInStep,
    reason: str = "",
    *,
    client: OAuthClient | None = None,
    tenant: Tenant | None = None,
    connection: Connection | None = None,
    client_id: str = "",
    host: str = "",
) -> None:
    """Record a step. `host` is what a policy names the client by. No code, token or secret is recorded.

    What a connection knows is taken from it. Of strangers, who may send any number of requests, so many a minute are
    recorded as `MAX_OF_STRANGERS` says. A refusal before anything else is known is one of the client that the
    request names, in the tenant whose endpoint it names.
    """
    if step == SignInStep.REJECTED:
        vars(request)[_REJECTED] = True
    if step == SignInStep.REJECTED and connection is None:
        if client is None and 0 < len(client_id) <= MAX_CLIENT_ID and is_storable(client_id):
            client = OAuthClient.objects.filter(client_id=client_id).first()
        tenant = tenant or _named_tenant(request, client)
    if connection is None and not request.user.is_authenticated:
        tenant_id = tenant.pk if tenant is not None else None
        if are_too_many_of_strangers(tenant_id, client_ip_of(request)):
            return
    if connection is not None:
        client, tenant = connection.client, connection.tenant
    person = connection.person if connection is not None else request.user
    event = SignInEvent(
        step=step,
        reason=for_column(reason, MAX_REASON),
        tenant=tenant,
        connection_id=connection.pk if connection else None,
        client_id=for_column(client.client_id if client else client_id, MAX_CLIENT_ID),
        client_name=client.name if client else "",
        person_name=person.get_username()[:150] if person else "",
        host=host[:MAX_HOST],
        remote_address=client_ip_of(request),
    )
    event.attempt = attempt_of(event)
    event.save(force_insert=True)


def is_rejection_recorded(request: HttpRequest) -> bool:
    """Whether the reason why a request is refused was recorded, with more than the client is told."""
    return _REJECTED in vars(request)


def _named_tenant(request: HttpRequest, client: OAuthClient | None) -> Tenant | None:
    """Return the tenant of a request's resource, or of its service client.

    None for a person who is no member: their name is none of the tenant's business.
    """
    if client is not None and client.source == ClientSource.SERVICE:
        return Tenant.objects.filter(connections__client=client).first()
    try:
        resource = request.GET.get("resource") or request.POST.get("resource", "")
        slug = resources.parse(resource, f"{request.scheme}://{request.get_host()}").slug
    except resources.UnknownResource:
        return None
    rows = permissions.tenants_seen_by(request.user) if request.user.is_authenticated else Tenant.objects.all()
    return rows.filter(slug=slug, is_active=True).first() if slug else None


def attempt_of(event: SignInEvent) -> UUID:
    """Return the attempt that a step continues, or that of a new one."""
    if event.step in SINGLE or not event.client_id:
        return new_id()
    since = timezone.now() - WITHIN
    recent = SignInEvent.objects.filter(at__gt=since, client_id=event.client_id, attempt__isnull=False)
    steps: dict[UUID, list[SignInEvent]] = {}
    for step in recent.order_by("-at", "-id")[:MAX_STEPS]:
        assert step.attempt is not None
        steps.setdefault(step.attempt, []).append(step)

    def is_of_another(step: SignInEvent) -> bool:
        names = ("person_name", "tenant_id", "connection_id")
        pairs = ((getattr(event, name), getattr(step, name)) for name in names)
        return any(ours and theirs and ours != theirs for ours, theirs in pairs)

    for attempt, earlier in steps.items():
        is_over = event.step in FIRST and any(step.step in LAST for step in earlier)
        if not is_over and not any(map(is_of_another, earlier)):
            return attempt
    return new_id()


def are_too_many_of_strangers(tenant_id: UUID | None = None, address: str = "") -> bool:
    """Whether so many steps of strangers were recorded within a minute; if not, one more is counted.

    A tenant, and an address at it, has a number of its own, so that none uses up that of another.
    """
    tenant = f"oauth:steps:{tenant_id}"
    places = [
        ConcurrencyLimit("address", "steps", MAX_OF_ADDRESS, f"{tenant}:{rate_limit_key(address)}"),
        ConcurrencyLimit("tenant", "steps", MAX_OF_STRANGERS, tenant),
        ConcurrencyLimit("strangers", "steps", MAX_OF_ALL_STRANGERS, "oauth:steps"),
    ]
    return limits.acquire_blocking(places, str(new_id()), MINUTE) is not None


def are_too_many_of_connection(connection_id: UUID) -> bool:
    """Whether MAX_OF_CONNECTION steps of a connection were recorded within an hour; if not, one more is counted."""
    place = ConcurrencyLimit("connection", "steps", MAX_OF_CONNECTION, f"oauth:steps:connection:{connection_id}")
    return limits.acquire_blocking([place], str(new_id()), HOUR) is not None
