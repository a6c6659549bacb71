"""The record of sign-ins: each step of each attempt, with its reason where it failed."""

from django.http import HttpRequest

from tools_app.access.principal import address_of
from tools_app.models import Connection, OAuthClient, SignInEvent, SignInStep, Tenant
from tools_app.models.oauth import MAX_CLIENT_ID

MAX_REASON = 500


def note(
    request: HttpRequest,
    step: SignInStep,
    reason: str = "",
    *,
    client: OAuthClient | None = None,
    tenant: Tenant | None = None,
    connection: Connection | None = None,
    client_id: str = "",
) -> None:
    """Record a step. What a connection knows is taken from it. No code, token or secret is recorded."""
    if connection is not None:
        client, tenant = connection.client, connection.tenant
    person = connection.person.get_username() if connection else request.user.get_username()
    SignInEvent.objects.create(
        step=step,
        reason=reason[:MAX_REASON],
        tenant=tenant,
        connection_id=connection.pk if connection else None,
        client_id=(client.client_id if client else client_id)[:MAX_CLIENT_ID],
        client_name=client.name if client else "",
        person_name=person[:150],
        remote_address=address_of(request),
    )
