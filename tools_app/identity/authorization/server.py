"""The authorization server: Authlib's grants over the hub's clients and connections (OAuth 2.1).

Authlib raises errors whose description has forbidden characters as ValueError: what a client sends is checked by
`check_parameters` before.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from authlib.integrations.django_oauth2.requests import DjangoOAuth2Payload
from authlib.oauth2 import AuthorizationServer as BaseServer
from authlib.oauth2 import OAuth2Error, OAuth2Request
from authlib.oauth2.rfc6749 import (
    InvalidClientError,
    InvalidGrantError,
    InvalidRequestError,
    UnsupportedGrantTypeError,
)
from authlib.oauth2.rfc6749.authenticate_client import authenticate_none
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from joserfc import jwt
from joserfc.errors import JoseError

from tools_app.core.http.documents import DocumentError
from tools_app.identity.issuers import tokens as issued
from tools_app.identity.oauth import (
    attempts,
    clients,
    devices,
    key_sets,
    policies,
    redirects,
    resources,
    service_clients,
    tokens,
)
from tools_app.models import ClientDecision, Connection, OAuthClient, SignInStep

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_ASSERTION: Final = 8000
MAX_LIFETIME_SECONDS: Final = 600
# Keys are read again for an unknown key ID, at most so often.
KEYS_REFRESH_INTERVAL: Final = timedelta(minutes=1)
# They are read again after this time, so that a key that a client withdrew ends.
MAX_KEYS_AGE: Final = timedelta(hours=1)
MAX_PARAMETER: Final = 2000
MAX_PARAMETERS: Final = {"client_assertion": MAX_ASSERTION, "assertion": issued.MAX_TOKEN}
_PLAIN_TEXT: Final = re.compile(r"[ !#-\[\]-~]*")
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GRANT_TYPES: Final = (clients.CODE, clients.REFRESH, devices.GRANT, service_clients.GRANT, JWT_BEARER)
NO_STORE: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class InvalidTargetError(OAuth2Error):
    """The resource is no endpoint of this hub (RFC 8707, section 2)."""

    error = "invalid_target"


class ClientAdapter:
    """A client's row, as Authlib expects it."""

    def __init__(self, row: OAuthClient) -> None:
        self.row = row

    def get_client_id(self) -> str:
        return self.row.client_id

    def get_default_redirect_uri(self) -> str | None:
        """Return the only redirect URI of a client that has one and may leave it out."""
        uris = self.row.redirect_uris
        may_be_left_out = len(uris) == 1 and redirects.matches(uris[0], uris) and not redirects.is_loopback(uris[0])
        return uris[0] if may_be_left_out else None

    def get_allowed_scope(self, scope: str | None) -> str:
        """Return any scope: the tenant decides once it is known."""
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirects.matches(redirect_uri, self.row.redirect_uris)

    def check_client_secret(self, client_secret: str) -> bool:
        return clients.has_secret(self.row, client_secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in clients.methods_of(self.row)

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.row.grant_types


class DjangoOAuth2Request(OAuth2Request):
    """A Django request for Authlib, of any scheme: without HTTPS, the hub is on the person's own computer."""

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request.method, f"https://{request.get_host()}{request.path}", headers=request.headers)
        self.page = request
        self.payload = DjangoOAuth2Payload(request)

    @property
    def args(self) -> QueryDict:
        return self.page.GET

    @property
    def form(self) -> QueryDict:
        return self.page.POST


class Server(BaseServer):
    """The authorization server of the hub."""

    def query_client(self, client_id: str) -> ClientAdapter | None:
        """Return a client that is not blocked. Raises DocumentError."""
        row = clients.find(client_id)
        return ClientAdapter(row) if row is not None and row.blocked_at is None else None

    def create_oauth2_request(self, request: HttpRequest) -> DjangoOAuth2Request:
        return DjangoOAuth2Request(request)

    def get_token_grant(self, request: DjangoOAuth2Request) -> Any:
        """Return the grant of a token request. Raises UnsupportedGrantTypeError, with what is supported."""
        try:
            return super().get_token_grant(request)
        except UnsupportedGrantTypeError as problem:
            problem.description = f"grant_type is one of {', '.join(GRANT_TYPES)}."
            raise

    def handle_response(self, status: int, body: Any, headers: Any) -> HttpResponse:
        response = HttpResponse(status=status) if not isinstance(body, dict) else JsonResponse(body, status=status)
        for name, value in headers:
            response.headers[name] = value
        return response

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Do nothing: nothing listens."""


def _authenticate_public(query_client: Any, request: DjangoOAuth2Request) -> Any:
    """Return a public client. A request with an assertion has to prove it."""
    return None if request.form.get("client_assertion") else authenticate_none(query_client, request)


def _authenticate_by_assertion(query_client: Any, request: DjangoOAuth2Request) -> ClientAdapter | None:
    """Return the client that signed the request's assertion (`private_key_jwt`, RFC 7523, section 3); None without one.

    Its public keys are in its metadata document or registration, or at the URL that it names. Raises
    InvalidClientError.
    """
    assertion = request.form.get("client_assertion", "")
    if not assertion or request.form.get("client_assertion_type") != ASSERTION_TYPE:
        return None
    issuer = issuer_of(request.page)
    try:
        # The client that the assertion names, before anything is verified.
        _, claims = issued.decode_unverified(assertion)
        client: ClientAdapter | None = query_client(str(claims.get("sub", "")))
        if client is None or clients.SIGNED not in clients.methods_of(client.row):
            raise issued.InvalidToken("The assertion is of no client that signs.")
        claims = _verified_claims(client.row, assertion)
        if claims.get("iss") != client.row.client_id or claims.get("sub") != client.row.client_id:
            raise issued.InvalidToken("The issuer and the subject of the assertion must be the client ID.")
        issued.check_claims(claims, (issuer, f"{issuer}{reverse('oauth-token')}"), MAX_LIFETIME_SECONDS)
        issued.check_first_use(client.row, claims)
    except issued.InvalidToken as problem:
        raise InvalidClientError(description=str(problem), status_code=401) from None
    return client


def _verified_claims(client: OAuthClient, assertion: str) -> dict[str, Any]:
    """Return the claims of an assertion that a key of the client signed. Raises InvalidToken and DocumentError."""
    now = timezone.now()
    read_at = client.keys_fetched_at
    if client.jwks and client.jwks_uri and (read_at is None or read_at < now - MAX_KEYS_AGE):
        # While they cannot be read, those that are known count.
        with suppress(DocumentError):
            clients.read_keys(client)
    for may_read in (True, False):
        try:
            keys = key_sets.imported(client.jwks or {})
            return dict(jwt.decode(assertion, keys, registry=key_sets.REGISTRY).claims)
        except (JoseError, ValueError, KeyError, TypeError, AttributeError):
            read_at = client.keys_fetched_at
            is_due = client.jwks_uri and (read_at is None or read_at < now - KEYS_REFRESH_INTERVAL)
            if not may_read or not is_due:
                break
        clients.read_keys(client)
    raise issued.InvalidToken("The signature of the assertion cannot be verified.")


server: Final = Server()
server.register_client_auth_method(clients.PUBLIC, _authenticate_public)
server.register_client_auth_method(clients.SIGNED, _authenticate_by_assertion)


def check_parameters(data: QueryDict) -> None:
    """Raise InvalidRequestError for a parameter that is repeated, too long or has unusual characters."""
    for name, values in data.lists():
        if len(values) > 1 and name != "resource":
            raise InvalidRequestError("A parameter is sent more than once.")
        # The state is the client's own, and no message repeats it.
        max_length = MAX_PARAMETERS.get(name, MAX_PARAMETER)
        if name != "state" and any(len(value) > max_length or not _PLAIN_TEXT.fullmatch(value) for value in values):
            raise InvalidRequestError("A parameter is too long or has unusual characters.")


def issuer_of(request: HttpRequest) -> str:
    """Return the issuer: the origin under which the client reached the hub."""
    return f"{request.scheme}://{request.get_host()}"


def resource_of(request: HttpRequest, data: QueryDict) -> resources.Resource:
    """Return the endpoint that a request is about. Raises InvalidTargetError."""
    values = data.getlist("resource")
    try:
        endpoints = {resources.parse(resource, issuer_of(request)) for resource in values} or {resources.parse("", "")}
    except resources.UnknownResource:
        raise InvalidTargetError("The resource is no MCP endpoint of this hub.") from None
    if len(endpoints) > 1:
        raise InvalidTargetError("Ask for one resource at a time.")
    return endpoints.pop()


def issue_tokens(
    request: DjangoOAuth2Request,
    connection: Connection,
    issue: Callable[[], tokens.Pair],
    *,
    step: SignInStep = SignInStep.ISSUED,
    reason: str = "",
) -> tuple[int, dict[str, Any], Any]:
    """Return the response of the token endpoint with what `issue` issues, and record it.

    Raises InvalidGrantError if the connection has ended, its person left the tenant, that refuses the client, or for
    what was used before.
    """
    _check_connection(request, connection)
    try:
        pair = issue()
    except tokens.Replayed as replayed:
        text = "A code or refresh token was used a second time. Everything issued with it has ended."
        attempts.record(request.page, SignInStep.REPLAYED, text, connection=replayed.connection)
        raise InvalidGrantError("This was used before. Sign in again.") from None
    except tokens.TokenRevoked:
        raise InvalidGrantError("The code or refresh token has just ended. Sign in again.") from None
    OAuthClient.objects.filter(pk=request.client.row.pk).update(last_used_at=timezone.now())
    attempts.record(request.page, step, reason, connection=connection)
    body = {"access_token": pair.access, "token_type": "Bearer", "expires_in": pair.expires_in}
    refresh_token = {"refresh_token": pair.refresh} if pair.refresh else {}
    return 200, {**body, **refresh_token, "scope": pair.scope}, NO_STORE.items()


def check_resource(request: DjangoOAuth2Request, connection: Connection) -> None:
    """Raise InvalidTargetError for another resource than that of the connection."""
    slug = resource_of(request.page, request.form).slug
    if slug not in (None, connection.tenant.slug):
        raise InvalidTargetError("The code or token is for another resource.")


def _check_connection(request: DjangoOAuth2Request, connection: Connection) -> None:
    """Raise InvalidGrantError if the connection has ended, its person left the tenant, or that refuses the client."""
    decision = policies.decision_on(connection.tenant, connection.client, connection.redirect_uri)
    if not tokens.is_valid(connection):
        reason = "The connection has ended, or its person is no longer a member of the tenant, or has to sign in again."
        if connection.person_id is None:
            reason = "The service client was revoked or has expired, or its tenant is disabled."
    elif decision is not ClientDecision.ALLOW:
        reason = "The tenant does not allow this client any more."
        if decision is ClientDecision.ASK:
            reason = "The tenant does not allow this client: an admin has to allow it first."
    else:
        return
    attempts.record(request.page, SignInStep.REJECTED, reason, connection=connection)
    raise InvalidGrantError(f"{reason} Sign in again." if connection.person_id else reason)
