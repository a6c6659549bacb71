"""Service clients: programs that act for themselves in a tenant, by client credentials (RFC 6749, section 4.4).

A service client is an OAuth client with a connection that has no person. Its key, whose value no client has, has its
names, methods, limits and expiry.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction

from tools_app.identity.oauth import clients, key_sets, scopes, tokens
from tools_app.models import ClientSource, Connection, OAuthClient, ServiceClient, Tenant
from tools_app.tenants import keys
from tools_app.tenants.keys import digest_of

GRANT: Final = "client_credentials"
ID_START: Final = "mcphub_service_"


def create(
    tenant: Tenant,
    name: str,
    *,
    public_keys: Mapping[str, Any] | None = None,
    **fields: Any,
) -> tuple[ServiceClient, str]:
    """Store a service client; return it and its secret, which is "" for one that signs with `public_keys`.

    `fields` are those of its key; see `keys.issue`. Raises ValidationError.
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


def rotate_secret(client: OAuthClient) -> str:
    """Return a new secret of a client, in place of the one that it had. Tokens that were issued stay valid."""
    secret = _new_secret()
    client.secret_digest = digest_of(secret)
    client.save(update_fields=["secret_digest"])
    return secret


def keep_name(row: ServiceClient) -> None:
    """Name the client as its key, after that was renamed."""
    client = row.connection.client
    if client.name != row.name:
        client.name = row.name
        client.save(update_fields=["name"])


def replace_keys(client: OAuthClient, public_keys: Mapping[str, Any]) -> None:
    """Store the public keys of a client that signs, in place of those that it had. Raises ValidationError."""
    client.jwks = key_sets.checked(public_keys)
    client.save(update_fields=["jwks"])


def revoke(row: ServiceClient) -> bool:
    """End a service client and its tokens. Return False if it had ended."""
    tokens.end_all(row.connection)
    return keys.revoke(row)


def _new_secret() -> str:
    return clients.SECRET_PREFIX + secrets.token_urlsafe(32)
