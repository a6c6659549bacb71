"""The record of sign-ins: each step of each attempt, with its reason where it failed."""

from typing import Final

from django.http import HttpRequest

from tools_app.access.oauth import attempts
from tools_app.access.principal import address_of
from tools_app.models import Connection, OAuthClient, SignInEvent, SignInStep, Tenant
from tools_app.models.oauth import MAX_CLIENT_ID

MAX_REASON: Final = 500
MAX_HOST: Final = 255


def note(
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
    recorded as `attempts.MAX_OF_STRANGERS` says.
    """
    if connection is None and not request.user.is_authenticated:
        tenant_id = tenant.pk if tenant is not None else None
        if attempts.are_too_many_of_strangers(tenant_id, address_of(request)):
            return
    if connection is not None:
        client, tenant = connection.client, connection.tenant
    by = connection.person if connection is not None else request.user
    event = SignInEvent(
        step=step,
        reason=reason[:MAX_REASON],
        tenant=tenant,
        connection_id=connection.pk if connection else None,
        client_id=(client.client_id if client else client_id)[:MAX_CLIENT_ID],
        client_name=client.name if client else "",
        person_name=by.get_username()[:150] if by else "",
        host=host[:MAX_HOST],
        remote_address=address_of(request),
    )
    event.attempt = attempts.attempt_of(event)
    event.save(force_insert=True)
