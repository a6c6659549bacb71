"""Service clients: programs that act for themselves in a tenant, by client credentials (RFC 6749, section 4.4).

A service client is an OAuth client with a connection that has no person. Its key, whose value no client has, has its
names, methods, limits and expiry. Signals record what is created and edited; other changes are recorded here.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction

from tools_app.audit.changes import changes
from tools_app.identity.oauth import clients, key_sets, scopes, tokens
from tools_app.models import Action, ClientSource, Connection, OAuthClient, ServiceClient, Tenant
from tools_app.tenants import keys
from tools_app.tenants.keys import digest_of

GRANT: Final = "client_credentials"
ID_START: Final = "mcphub_service_"


def create(
    tenant: Tenant, name: str, *, public_keys: Mapping[str, Any] | None = None, **fields: Any
) -> tuple[ServiceClient, str]:
    """Store a service client; return it and its secret, which is "" for one that signs with `public_keys`.

    `fields` are those of its key: see `keys.issue`. Raises ValidationError.
    """
    jwks = key_sets.checked(public_keys) if public_keys else None
    secret = "" if jwks else _new_secret()
    with transaction.atomic():
        row, _ = keys.issue(tenant, name, model=ServiceClient, prefix=keys.CONNECTION_PREFIX, **fields)
        client = OAuthClient.objects.create(
            client_id=ID_START + secrets.token_urlsafe(16),
            source=ClientSource.SERVICE,
            name=name,
            grant_types=[GRANT],
            auth_method=clients.SIGNED if jwks else clients.SECRET_METHODS[0],
            secret_digest=digest_of(secret) if secret else "",
            jwks=jwks,
        )
        Connection.objects.create(
            tenant=tenant, person=None, client=client, key_id=row.pk, scope=" ".join(scopes.SCOPES), redirect_uri=""
        )
    assert isinstance(row, ServiceClient)
    return row, secret


def rotate_secret(row: ServiceClient) -> str:
    """Return a new secret of a client, in place of the one that it had. Tokens that were issued stay valid."""
    secret, client = _new_secret(), row.connection.client
    with changes.change_log_transaction():
        client.secret_digest = digest_of(secret)
        client.save(update_fields=["secret_digest"])
        changes.record(Action.ROTATED, row, after={"secret": "changed"})
    return secret


def keep_name(row: ServiceClient) -> None:
    """Name the client as its key, after that was renamed."""
    client = row.connection.client
    if client.name != row.name:
        client.name = row.name
        client.save(update_fields=["name"])


def replace_keys(row: ServiceClient, public_keys: Mapping[str, Any]) -> None:
    """Store the public keys of a client that signs, in place of those that it had. Raises ValidationError."""
    client = row.connection.client
    with changes.change_log_transaction():
        client.jwks = key_sets.checked(public_keys)
        client.save(update_fields=["jwks"])
        changes.record(Action.CHANGED, row, after={"public keys": "changed"})


def revoke(row: ServiceClient) -> bool:
    """End a service client and its tokens. Return False if it had ended."""
    with changes.change_log_transaction():
        tokens.end_all(row.connection)
        if not keys.revoke(row):
            return False
        row.refresh_from_db(fields=["revoked_at"])
        ended = row.revoked_at.isoformat() if row.revoked_at else None
        changes.record(Action.REVOKED, row, after={"revoked_at": ended})
        return True


def _new_secret() -> str:
    return clients.SECRET_PREFIX + secrets.token_urlsafe(32)
