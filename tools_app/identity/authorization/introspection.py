"""Introspection: what a client's own token is good for (RFC 7662). Of another client's token, nothing is told."""

from typing import Any, Final

from authlib.oauth2.rfc7662 import IntrospectionEndpoint as BaseIntrospection
from django.utils import timezone

from tools_app.identity.authorization.server import NO_STORE, ClientAdapter, DjangoOAuth2Request, issuer_of, server
from tools_app.identity.oauth import clients, resources, tokens
from tools_app.models import AccessToken, RefreshToken
from tools_app.tenants.keys import access_digest, digest_of

NAME: Final = "introspection"


class Introspection(BaseIntrospection):
    """The state of one access or refresh token."""

    ENDPOINT_NAME = NAME
    CLIENT_AUTH_METHODS = clients.AUTH_METHODS

    def create_endpoint_response(self, request: DjangoOAuth2Request) -> tuple[int, dict[str, Any], Any]:
        """Return what the token is good for now, or that it is good for nothing."""
        client: ClientAdapter = self.authenticate_endpoint_client(request)
        self.check_params(request, client)
        token = _find(request.form.get("token", ""), client)
        return 200, _introspection_response(token, request) if token else {"active": False}, NO_STORE.items()


server.register_endpoint(Introspection)


def _find(token: str, client: ClientAdapter) -> AccessToken | RefreshToken | None:
    """Return a valid token of this client. A refresh token that was replaced is none."""
    related = ("connection__person", "connection__tenant", "connection__client", "connection__key")
    of_client = {"connection__client": client.row}
    access = (
        tokens.valid_access_tokens().filter(digest=access_digest(token), **of_client).select_related(*related).first()
    )
    if access is not None:
        return access
    valid = tokens.valid_connections("connection__") & tokens.is_member("connection__")
    refresh = RefreshToken.objects.filter(valid, rotated_at=None, expires_at__gt=timezone.now(), **of_client)
    return refresh.filter(digest=digest_of(token)).select_related(*related).first()


def _introspection_response(token: AccessToken | RefreshToken, request: DjangoOAuth2Request) -> dict[str, Any]:
    connection, issuer = token.connection, issuer_of(request.page)
    # An access token ends with its connection, if that ends first.
    expires_at = min(moment for moment in (token.expires_at, connection.key.expires_at) if moment is not None)
    person = {"username": connection.person.get_username()} if connection.person else {}
    kind = {"token_type": "Bearer"} if isinstance(token, AccessToken) else {}
    return {
        "active": True,
        "scope": token.scope,
        "client_id": connection.client.client_id,
        **person,
        **kind,
        "sub": str(connection.person_id or connection.client.client_id),
        "aud": f"{issuer}{resources.path_of(connection.tenant.slug)}",
        "iss": issuer,
        "iat": int(token.created_at.timestamp()),
        "exp": int(expires_at.timestamp()),
    }
