"""Client credentials: an access token for a program that acts for itself (RFC 6749, section 4.4)."""

from typing import Any

from authlib.oauth2.rfc6749 import BaseGrant, TokenEndpointMixin, UnauthorizedClientError
from authlib.oauth2.rfc6749.hooks import hooked

from tools_app.identity.authorization import events
from tools_app.identity.authorization.server import (
    NO_STORE,
    check_connection,
    check_resource,
    issue_tokens,
    server,
    token_response,
)
from tools_app.identity.oauth import clients, service_clients, tenant_scopes, tokens
from tools_app.models import Connection, SignInStep


class ServiceGrant(BaseGrant, TokenEndpointMixin):
    """A service client that asks for an access token. It gets no refresh token: it can ask again."""

    GRANT_TYPE = service_clients.GRANT
    TOKEN_ENDPOINT_AUTH_METHODS = (*clients.SECRET_METHODS, clients.SIGNED)

    def validate_token_request(self) -> None:
        """Raise an OAuth2Error unless a service client asks."""
        client = self.authenticate_token_endpoint_client()
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError("Only service clients, which an admin of a tenant creates, use this grant.")
        self.request.client = client

    @hooked
    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        """Return an access token."""
        rows = Connection.objects.select_related("client", "person", "tenant")
        connection = rows.get(client=self.request.client.row)
        check_resource(self.request, connection)
        check_connection(self.request, connection)
        scope = tenant_scopes.granted(connection.tenant, self.request.payload.scope)
        pair = issue_tokens(self.request, lambda: tokens.issue_access(connection, scope))
        events.record(self.request.page, SignInStep.ISSUED, connection=connection)
        return 200, token_response(pair), NO_STORE.items()


server.register_grant(ServiceGrant)
