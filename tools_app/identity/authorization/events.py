"""The record of sign-ins: each step of each attempt, with its reason where it failed."""

from typing import Final

from django.http import HttpRequest

from tools_app.core.sanitize import for_column, is_storable
from tools_app.identity.models.oauth import MAX_CLIENT_ID
from tools_app.identity.oauth import attempts, resources
from tools_app.identity.principal import client_ip_of
from tools_app.models import ClientSource, Connection, OAuthClient, SignInEvent, SignInStep, Tenant
from tools_app.tenants import permissions

MAX_REASON: Final = 500
MAX_HOST: Final = 255
# On a request, that its refusal was recorded.
_REJECTED: Final = "sign_in_rejected"


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
    recorded as `attempts.MAX_OF_STRANGERS` says. A refusal before anything else is known is one of the client that the
    request names, in the tenant whose endpoint it names.
    """
    if step == SignInStep.REJECTED:
        vars(request)[_REJECTED] = True
    if step == SignInStep.REJECTED and connection is None:
        client = client or _named_client(client_id)
        tenant = tenant or _named_tenant(request, client)
    if connection is None and not request.user.is_authenticated:
        tenant_id = tenant.pk if tenant is not None else None
        if attempts.are_too_many_of_strangers(tenant_id, client_ip_of(request)):
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
    event.attempt = attempts.attempt_of(event)
    event.save(force_insert=True)


def is_rejection_recorded(request: HttpRequest) -> bool:
    """Whether the reason why a request is refused was recorded, with more than the client is told."""
    return _REJECTED in vars(request)


def _named_client(client_id: str) -> OAuthClient | None:
    if not client_id or len(client_id) > MAX_CLIENT_ID or not is_storable(client_id):
        return None
    return OAuthClient.objects.filter(client_id=client_id).first()


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
