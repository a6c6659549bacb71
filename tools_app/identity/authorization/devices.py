"""Sign-in of devices without a browser: how they ask, and how they wait for their person's decision (RFC 8628)."""

from typing import Any, Final

from authlib.oauth2.rfc6749 import (
    AccessDeniedError,
    BaseGrant,
    InvalidGrantError,
    InvalidScopeError,
    TokenEndpointMixin,
    UnauthorizedClientError,
)
from authlib.oauth2.rfc6749.hooks import hooked
from authlib.oauth2.rfc8628 import AuthorizationPendingError, ExpiredTokenError, SlowDownError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from tools_app.identity.authorization import events
from tools_app.identity.authorization.server import (
    NO_STORE,
    check_connection,
    check_resource,
    has_authenticated,
    issue_tokens,
    issuer_of,
    resource_of,
    server,
    token_response,
)
from tools_app.identity.models.oauth import MAX_SCOPE
from tools_app.identity.oauth import clients, devices, tokens
from tools_app.identity.principal import client_ip_of, site_of
from tools_app.models import DeviceCode, SignInStep

USER_CODE: Final = "user_code"


class DeviceGrant(BaseGrant, TokenEndpointMixin):
    """A device that asks whether its person has decided (RFC 8628, section 3.4)."""

    GRANT_TYPE = devices.GRANT
    TOKEN_ENDPOINT_AUTH_METHODS = clients.AUTH_METHODS

    def validate_token_request(self) -> None:
        """Raise an OAuth2Error unless the person has allowed the request."""
        client = self.authenticate_token_endpoint_client()
        row = devices.find(self.request.form.get("device_code", ""), client.row.pk)
        if row is None:
            raise InvalidGrantError("The device code is unknown. Ask for a new one.")
        _check_decided(row)
        self.request.client, self.request.credential = client, row

    @hooked
    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        """Return the tokens of a request that was allowed."""
        row: DeviceCode = self.request.credential
        assert row.connection is not None
        check_resource(self.request, row.connection)
        check_connection(self.request, row.connection)
        pair = issue_tokens(
            self.request, lambda: tokens.exchange_device_code(row, is_bound=has_authenticated(self.request))
        )
        events.record(self.request.page, SignInStep.ISSUED, connection=row.connection)
        return 200, token_response(pair), NO_STORE.items()


server.register_grant(DeviceGrant)


def begin(request: HttpRequest) -> HttpResponse:
    """Return the codes of a new request. Raises OAuth2Error, and devices.TooManyRequests."""
    oauth_request = server.create_oauth2_request(request)
    client = server.authenticate_client(oauth_request, clients.AUTH_METHODS, "device_authorization")
    if not client.check_grant_type(devices.GRANT):
        raise UnauthorizedClientError(f"The metadata of the client does not list the grant type {devices.GRANT}.")
    slug = resource_of(request, request.POST).slug or ""
    scope = request.POST.get("scope", "")
    if len(scope) > MAX_SCOPE:
        raise InvalidScopeError(f"The scope has at most {MAX_SCOPE} characters.")
    codes = devices.begin(client.row, slug, scope, site_of(client_ip_of(request)))
    events.record(request, SignInStep.CHALLENGED, "A device shows a code.", client=client.row)
    page = issuer_of(request) + reverse("oauth-device")
    user_code = devices.spelt(codes.user)
    body = {
        "device_code": codes.device,
        USER_CODE: user_code,
        "verification_uri": page,
        "verification_uri_complete": f"{page}?{urlencode({USER_CODE: user_code})}",
        "expires_in": int(devices.LIFETIME.total_seconds()),
        "interval": devices.INTERVAL,
    }
    return JsonResponse(body, headers=NO_STORE)


def _check_decided(row: DeviceCode) -> None:
    if row.refused_at is not None:
        raise AccessDeniedError("The person refused.")
    # What was allowed in time is issued in time, or never.
    if row.expires_at <= timezone.now():
        raise ExpiredTokenError("The code has expired. Ask for a new one.")
    if row.connection is not None:
        return
    if devices.asks_too_often(row):
        raise SlowDownError(f"Wait {row.interval} seconds between two requests.")
    raise AuthorizationPendingError("The person has not decided yet.")
