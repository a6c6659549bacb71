"""The endpoints that clients call, such as those of tokens and registration. None reads a cookie."""

from collections.abc import Callable
from typing import Final

import orjson
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import InvalidClientError, InvalidScopeError, UnauthorizedClientError
from authlib.oauth2.rfc6749.util import extract_basic_authorization
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters

from tools_app.core.http.documents import DocumentError
from tools_app.core.ids import new_id
from tools_app.identity.authorization.assertions import AssertionGrant
from tools_app.identity.authorization.grants import Introspection, Revocation
from tools_app.identity.authorization.metadata import allow_any_origin
from tools_app.identity.authorization.server import NO_STORE, check_parameters, issuer_of, resource_of, server
from tools_app.identity.models.oauth import MAX_SCOPE
from tools_app.identity.oauth import attempts, clients, devices
from tools_app.identity.principal import client_ip_of, rate_limit_key, site_of
from tools_app.models import SignInStep
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

server.register_grant(AssertionGrant)

USER_CODE: Final = "user_code"
MAX_REGISTRATION_BYTES: Final = 16 * 1024
MAX_REGISTRATIONS: Final = 10
MAX_TOKEN_REQUESTS: Final = 300
MAX_DEVICE_REQUESTS: Final = 20
WINDOW_SECONDS: Final = 60.0
# What a device hears while its person decides is no failure.
PENDING_ERRORS: Final = ("authorization_pending", "slow_down")


@csrf_exempt
@sensitive_post_parameters()
@allow_any_origin("POST")
def token(request: HttpRequest) -> HttpResponse:
    """Exchange a code or refresh token for tokens (RFC 6749, sections 4.1.3 and 6)."""
    return _respond(request, lambda: server.create_token_response(request))


@csrf_exempt
@sensitive_post_parameters()
@allow_any_origin("POST")
def revoke(request: HttpRequest) -> HttpResponse:
    """End a token and everything that was issued with it (RFC 7009)."""
    return _respond(request, lambda: server.create_endpoint_response(Revocation.ENDPOINT_NAME, request))


@csrf_exempt
@sensitive_post_parameters()
@allow_any_origin("POST")
def introspect(request: HttpRequest) -> HttpResponse:
    """Return what a client's own token is good for (RFC 7662)."""
    return _respond(request, lambda: server.create_endpoint_response(Introspection.ENDPOINT_NAME, request))


@csrf_exempt
@sensitive_post_parameters()
@allow_any_origin("POST")
def device_authorization(request: HttpRequest) -> HttpResponse:
    """Return the codes with which a device without a browser lets its person sign in (RFC 8628, section 3.1)."""
    if is_rate_limited(request, "devices", MAX_DEVICE_REQUESTS):
        return _error("temporarily_unavailable", "Too many requests. Try again in a minute.", 429)
    try:
        return _respond(request, lambda: _begin_device(request))
    except devices.TooManyRequests:
        return _error(
            "temporarily_unavailable", "Too many devices of this network wait to sign in. Try again in 10 minutes.", 503
        )


def _begin_device(request: HttpRequest) -> HttpResponse:
    client = server.authenticate_client(
        server.create_oauth2_request(request), clients.AUTH_METHODS, "device_authorization"
    )
    if not client.check_grant_type(devices.GRANT):
        raise UnauthorizedClientError(f"The metadata of the client does not list the grant type {devices.GRANT}.")
    slug, scope = resource_of(request, request.POST).slug or "", request.POST.get("scope", "")
    if len(scope) > MAX_SCOPE:
        raise InvalidScopeError(f"The scope has at most {MAX_SCOPE} characters.")
    codes = devices.begin(client.row, slug, scope, site_of(client_ip_of(request)))
    attempts.record(request, SignInStep.CHALLENGED, "A device shows a code.", client=client.row)
    page, user_code = issuer_of(request) + reverse("oauth-device"), devices.spelt(codes.user)
    body = {
        "device_code": codes.device,
        USER_CODE: user_code,
        "verification_uri": page,
        "verification_uri_complete": f"{page}?{urlencode({USER_CODE: user_code})}",
        "expires_in": int(devices.LIFETIME.total_seconds()),
        "interval": devices.INTERVAL,
    }
    return JsonResponse(body, headers=NO_STORE)


@csrf_exempt
@allow_any_origin("POST")
def register(request: HttpRequest) -> HttpResponse:
    """Register a client (RFC 7591)."""
    if is_rate_limited(request, "registrations", MAX_REGISTRATIONS):
        return _error("temporarily_unavailable", "Too many registrations. Try again in a minute.", 429)
    try:
        metadata = orjson.loads(request.body) if len(request.body) <= MAX_REGISTRATION_BYTES else None
    except orjson.JSONDecodeError:
        metadata = None
    if not isinstance(metadata, dict):
        return _error("invalid_client_metadata", f"Send a JSON object of at most {MAX_REGISTRATION_BYTES} bytes.", 400)
    try:
        client, secret = clients.register(metadata, site_of(client_ip_of(request)))
    except clients.InvalidMetadata as problem:
        attempts.record(request, SignInStep.REJECTED, f"Registration: {problem}")
        return _error(problem.error, str(problem), 400)
    except clients.TooManyClients:
        return _error("temporarily_unavailable", "Too many clients have just registered. Try again in 10 minutes.", 503)
    attempts.record(request, SignInStep.CLIENT_SEEN, client=client)
    body = {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created_at.timestamp()),
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "token_endpoint_auth_method": client.auth_method,
        "grant_types": client.grant_types,
        "response_types": ["code"],
    }
    if secret:
        body |= {"client_secret": secret, "client_secret_expires_at": 0}
    if client.jwks_uri or client.jwks:
        body |= {"jwks_uri": client.jwks_uri} if client.jwks_uri else {"jwks": client.jwks}
    return JsonResponse(body, status=201, headers=NO_STORE)


def is_rate_limited(request: HttpRequest, kind: str, max_requests: int) -> bool:
    """Whether an address sends more than `max_requests` of a kind in WINDOW_SECONDS, to all processes together."""
    limit = ConcurrencyLimit("address", kind, max_requests, f"oauth:{kind}:{rate_limit_key(client_ip_of(request))}")
    return limits.acquire_blocking([limit], str(new_id()), WINDOW_SECONDS) is not None


def _respond(request: HttpRequest, handler: Callable[[], HttpResponse]) -> HttpResponse:
    if is_rate_limited(request, "tokens", MAX_TOKEN_REQUESTS):
        return _error("temporarily_unavailable", "Too many requests. Try again in a minute.", 429)
    client_id = request.POST.get("client_id", "")
    try:
        check_parameters(request.POST)
        try:
            client_id = client_id or extract_basic_authorization(request.headers)[0] or ""
        except UnicodeDecodeError:
            reason = "The name and the secret in the Authorization header are not UTF-8."
            raise InvalidClientError(description=reason, status_code=401) from None
        response = handler()
    except OAuth2Error as problem:
        response = _error(problem.error, problem.description, problem.status_code)
    except DocumentError as problem:
        response = _error("invalid_client", str(problem), 400)
    if response.status_code >= 400:  # noqa: PLR2004 - an error
        body = orjson.loads(response.content)
        if body.get("error") not in PENDING_ERRORS and not attempts.is_rejection_recorded(request):
            reason = f"{body.get('error')}: {body.get('error_description', '')}"
            attempts.record(request, SignInStep.REJECTED, reason, client_id=client_id)
    return response


def _error(code: str, description: str, status: int) -> HttpResponse:
    return JsonResponse({"error": code, "error_description": description}, status=status, headers=NO_STORE)
