"""The grants of the token endpoint, and the endpoints that tell of tokens and end them.

An assertion is a grant, too: see `authorization.assertions`.
"""

from typing import Any

from authlib.oauth2.rfc6749 import (
    AccessDeniedError,
    BaseGrant,
    InvalidClientError,
    InvalidGrantError,
    InvalidRequestError,
    TokenEndpointMixin,
    UnauthorizedClientError,
    grants,
)
from authlib.oauth2.rfc6749.hooks import hooked
from authlib.oauth2.rfc7009 import RevocationEndpoint as BaseRevocation
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc7662 import IntrospectionEndpoint as BaseIntrospection
from authlib.oauth2.rfc8628 import AuthorizationPendingError, ExpiredTokenError, SlowDownError
from django.utils import timezone

from tools_app.identity.authorization.server import (
    NO_STORE,
    ClientAdapter,
    DjangoOAuth2Request,
    check_resource,
    issue_tokens,
    issuer_of,
    server,
)
from tools_app.identity.models.oauth import OFFLINE
from tools_app.identity.oauth import attempts, clients, devices, resources, scopes, service_clients, tokens
from tools_app.models import (
    AccessToken,
    AuthorizationCode,
    Connection,
    DeviceCode,
    RefreshToken,
    SignInStep,
)
from tools_app.tenants.keys import access_digest, digest_of


def has_authenticated(request: DjangoOAuth2Request) -> bool:
    """Whether the client of a request proved who it is."""
    return bool(request.auth_method != clients.PUBLIC)


class CodeGrant(grants.AuthorizationCodeGrant):
    """Authorization codes with PKCE (OAuth 2.1, section 4.1)."""

    TOKEN_ENDPOINT_AUTH_METHODS = clients.AUTH_METHODS

    def query_authorization_code(self, code: str, client: ClientAdapter) -> "CodeAdapter | None":
        row = tokens.find_code(code, client.row.pk)
        return CodeAdapter(row, self.request) if row is not None else None

    @hooked
    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        """Return the tokens of a code."""
        row: AuthorizationCode = self.request.authorization_code.row
        check_resource(self.request, row.connection)
        is_bound = has_authenticated(self.request)
        return issue_tokens(self.request, row.connection, lambda: tokens.exchange_code(row, is_bound=is_bound))


class CodeAdapter:
    """A code's row, as Authlib expects it."""

    def __init__(self, row: AuthorizationCode, request: DjangoOAuth2Request) -> None:
        self.row = row
        self.code_challenge, self.code_challenge_method = row.code_challenge, "S256"
        self._is_redirect_uri_sent = "redirect_uri" in request.form

    def get_redirect_uri(self) -> str:
        """Return what the redirect URI of the token request has to be; "" without one: OAuth 2.1 has PKCE instead."""
        return self.row.redirect_uri if self._is_redirect_uri_sent else ""


class RequiredPkce(CodeChallenge):
    """PKCE, always, and with S256 only (OAuth 2.1, section 4.1.1)."""

    DEFAULT_CODE_CHALLENGE_METHOD = "S256"
    SUPPORTED_CODE_CHALLENGE_METHOD = ["S256"]

    def validate_code_challenge(self, grant: CodeGrant, redirect_uri: str) -> None:
        """Raise InvalidRequestError without a challenge, or with a method other than S256."""
        if grant.request.payload.data.get("code_challenge_method") != "S256":
            raise InvalidRequestError("PKCE is required: send code_challenge, and S256 as code_challenge_method.")
        super().validate_code_challenge(grant, redirect_uri)


class RefreshGrant(grants.RefreshTokenGrant):
    """Rotation of refresh tokens."""

    TOKEN_ENDPOINT_AUTH_METHODS = clients.AUTH_METHODS

    def authenticate_refresh_token(self, refresh_token: str) -> "RefreshAdapter":
        row = tokens.find_refresh_token(refresh_token, self.request.client.row.pk)
        if row is None:
            raise InvalidGrantError("The refresh token is unknown or has ended. Sign in again.")
        return RefreshAdapter(row)

    @hooked
    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        """Return the next tokens."""
        row: RefreshToken = self.request.refresh_token.row
        check_resource(self.request, row.connection)
        is_bound = has_authenticated(self.request)
        if row.is_bound and not is_bound:
            raise InvalidClientError(
                description="The client authenticated to get this refresh token, and has to do so to use it.",
                status_code=401,
            )
        scope = scopes.narrowed(row.scope, self.request.payload.scope) or row.scope
        return issue_tokens(
            self.request,
            row.connection,
            lambda: tokens.rotate(row, scope, is_bound=is_bound),
            step=SignInStep.REFRESHED,
        )


class RefreshAdapter:
    """A refresh token's row, as Authlib expects it."""

    def __init__(self, row: RefreshToken) -> None:
        self.row = row

    def check_client(self, client: ClientAdapter) -> bool:
        return self.row.connection.client_id == client.row.pk

    def get_scope(self) -> str:
        """Return the scopes that a client may ask for again. What asks for no access is always among them."""
        return f"{self.row.scope} {OFFLINE}"


class DeviceGrant(BaseGrant, TokenEndpointMixin):
    """A device that asks whether its person has decided (RFC 8628, section 3.4)."""

    GRANT_TYPE = devices.GRANT
    TOKEN_ENDPOINT_AUTH_METHODS = clients.AUTH_METHODS

    def validate_token_request(self) -> None:
        """Raise an OAuth2Error unless the person has allowed the request."""
        self.request.client = self.authenticate_token_endpoint_client()
        row = devices.find(self.request.form.get("device_code", ""), self.request.client.row.pk)
        if row is None:
            raise InvalidGrantError("The device code is unknown. Ask for a new one.")
        if row.refused_at is not None:
            raise AccessDeniedError("The person refused.")
        # What was allowed in time is issued in time, or never.
        if row.expires_at <= timezone.now():
            raise ExpiredTokenError("The code has expired. Ask for a new one.")
        if row.connection is None:
            if devices.asks_too_often(row):
                raise SlowDownError(f"Wait {row.interval} seconds between two requests.")
            raise AuthorizationPendingError("The person has not decided yet.")
        self.request.credential = row

    @hooked
    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        """Return the tokens of a request that was allowed."""
        row: DeviceCode = self.request.credential
        assert row.connection is not None
        check_resource(self.request, row.connection)
        is_bound = has_authenticated(self.request)
        return issue_tokens(self.request, row.connection, lambda: tokens.exchange_device_code(row, is_bound=is_bound))


class ServiceGrant(BaseGrant, TokenEndpointMixin):
    """A program that acts for itself (RFC 6749, section 4.4). It gets no refresh token: it can ask again."""

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
        row = rows.get(client=self.request.client.row)
        check_resource(self.request, row)
        scope = scopes.granted(row.tenant, self.request.payload.scope)
        return issue_tokens(self.request, row, lambda: tokens.issue_access(row, scope))


class Revocation(BaseRevocation):
    """Revocation of a token, which ends its family (RFC 7009)."""

    CLIENT_AUTH_METHODS = clients.AUTH_METHODS

    def authenticate_token(self, request: DjangoOAuth2Request, client: ClientAdapter) -> Any:
        self.check_params(request, client)
        return tokens.family_of(request.form.get("token", ""), client.row.pk)

    def revoke_token(self, token: Any, request: DjangoOAuth2Request) -> None:
        family, connection = token
        tokens.end_family(family, connection)
        attempts.record(request.page, SignInStep.REVOKED, "By the client.", connection=connection)


class Introspection(BaseIntrospection):
    """What a client's own token is good for (RFC 7662). Of another client's token, nothing is told."""

    CLIENT_AUTH_METHODS = clients.AUTH_METHODS

    def query_token(self, token_string: str, token_type_hint: str | None) -> AccessToken | RefreshToken | None:
        """Return a valid token. A refresh token that was replaced is none."""
        related = ("connection__person", "connection__tenant", "connection__client", "connection__key")
        access = tokens.valid_access_tokens().filter(digest=access_digest(token_string))
        valid = tokens.valid_connections("connection__") & tokens.is_member("connection__")
        refresh = RefreshToken.objects.filter(
            valid, digest=digest_of(token_string), rotated_at=None, expires_at__gt=timezone.now()
        )
        return access.select_related(*related).first() or refresh.select_related(*related).first()

    def check_permission(
        self, token: AccessToken | RefreshToken, client: ClientAdapter, request: DjangoOAuth2Request
    ) -> bool:
        return token.connection.client_id == client.row.pk

    def create_endpoint_response(self, request: DjangoOAuth2Request) -> tuple[int, dict[str, Any], Any]:
        """Return what the token is good for now, or that it is good for nothing."""
        client: ClientAdapter = self.authenticate_endpoint_client(request)
        token: AccessToken | RefreshToken | None = self.authenticate_token(request, client)
        if token is None:
            return 200, {"active": False}, NO_STORE.items()
        connection, issuer = token.connection, issuer_of(request.page)
        # An access token ends with its connection, if that ends first.
        expires_at = min(moment for moment in (token.expires_at, connection.key.expires_at) if moment is not None)
        body = {
            "active": True,
            "scope": token.scope,
            "client_id": connection.client.client_id,
            **({"username": connection.person.get_username()} if connection.person else {}),
            **({"token_type": "Bearer"} if isinstance(token, AccessToken) else {}),
            "sub": str(connection.person_id or connection.client.client_id),
            "aud": f"{issuer}{resources.path_of(connection.tenant.slug)}",
            "iss": issuer,
            "iat": int(token.created_at.timestamp()),
            "exp": int(expires_at.timestamp()),
        }
        return 200, body, NO_STORE.items()


server.register_grant(CodeGrant, [RequiredPkce()])
for grant in (RefreshGrant, DeviceGrant, ServiceGrant):
    server.register_grant(grant)
for endpoint in (Revocation, Introspection):
    server.register_endpoint(endpoint)
