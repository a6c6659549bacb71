"""The base view of the API: authentication, rate limit, parsing, rendering and errors, the same for all views.

People authenticate by a browser's session or a personal token. Bodies are JSON of bounded size and depth, limited to
values that the database can store.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from tools_app.core.sanitize import has_nul
from tools_app.identity import personal_tokens as tokens
from tools_app.models import PersonalToken
from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import RpcError
from tools_app.tenants.permissions import TenantPermissions, tenant_permissions_of
from tools_app.web.api.problems import TooLarge, problem_answer

NOT_VALID = "The token is unknown, expired or revoked. Create one under My tokens in the admin."
IS_API_KEY = (
    "This is an API key for MCP clients. The REST API requires a personal token."
    " Create one under My tokens in the admin."
)
SCHEME = "bearer"


class TokenLogin(BaseAuthentication):
    """`Authorization: Bearer mcphubt_...`."""

    def authenticate(self, request: Request) -> tuple[Any, PersonalToken] | None:
        """Return the person and the token; None without a token. Raises AuthenticationFailed for an invalid one."""
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != SCHEME:
            raise AuthenticationFailed("The header must be `Authorization: Bearer` and a personal token.")
        row = tokens.find(credential.strip())
        if row is None:
            raise AuthenticationFailed(IS_API_KEY if tokens.is_api_key(credential.strip()) else NOT_VALID)
        return row.person, row

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401."""
        return 'Bearer realm="mcphub"'


class TokenLoginInSchema(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """`TokenLogin` in the OpenAPI document."""

    target_class = TokenLogin
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return an HTTP bearer scheme."""
        return {"type": "http", "scheme": SCHEME, "description": "A personal token, which starts with `mcphubt_`."}


class PerPerson(SimpleRateThrottle):
    """MCPHUB_API_REQUESTS_PER_MINUTE requests of one person per minute, with any number of tokens. 0: no limit.

    Each web process counts separately.
    """

    def get_rate(self) -> str | None:
        """Return the rate in REST framework's format."""
        most = settings.MCPHUB_API_REQUESTS_PER_MINUTE
        return f"{most}/min" if most else None

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        """Return the key of the counter; None for requests that are not counted."""
        return f"api-requests-{request.user.pk}" if request.user.pk else None


class JsonParser(BaseParser):
    """Reads at most the hub's maximum body size."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON value. Raises TooLarge and ParseError."""
        most = settings.MCPHUB_MAX_BODY_BYTES
        body = stream.read(most + 1)
        if len(body) > most:
            raise TooLarge(f"The body is larger than {most} bytes.")
        if not body.strip():
            return {}
        try:
            value = jsonrpc.decode(body, loads=orjson.loads)
        except RpcError as error:
            raise ParseError(f"Invalid JSON in the body. {error.message}.") from None
        if has_nul(value, body):
            raise ParseError("The body contains the character U+0000, which cannot be stored.")
        return value


class AlwaysJson(BaseContentNegotiation):
    """Responses are JSON, regardless of `Accept`: a client that asks for another format still gets the error."""

    def select_parser(self, request: Any, parsers: Any) -> Any:
        """Return the parser for the body's content type; None if there is none."""
        kind = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(self, request: Any, renderers: Any, format_suffix: str | None = None) -> Any:
        """Return the first renderer."""
        return renderers[0], renderers[0].media_type


class HasMembership(BasePermission):
    """Superusers and members of any tenant."""

    message = "You are not a member of any tenant. Ask a tenant's admin for an invitation."

    def has_permission(self, request: Request, view: "BaseApiView") -> bool:
        """Whether this person may use the API."""
        return bool(request.user and request.user.is_authenticated) and view.tenant_permissions.has_access


class BaseApiView:
    """A JSON view for members, with a rate limit."""

    request: Request
    authentication_classes = (TokenLogin, SessionAuthentication)
    permission_classes: tuple[Any, ...] = (HasMembership,)
    throttle_classes = (PerPerson,)
    parser_classes = (JsonParser,)
    renderer_classes: Any = (JSONRenderer,)
    content_negotiation_class: Any = AlwaysJson
    metadata_class = None

    @property
    def tenant_permissions(self) -> TenantPermissions:
        """The permissions of the person who sends the request: those that are confirmed when it changes something."""
        return tenant_permissions_of(self.request._request)  # noqa: SLF001 - it lives as long as the request

    def get_exception_handler(self) -> Any:
        """Return the handler that renders errors as problem details."""
        return problem_answer

    def finalize_response(self: Any, request: Request, response: Any, *args: Any, **options: Any) -> Any:
        """Forbid caching of every response."""
        response = super().finalize_response(request, response, *args, **options)  # type: ignore[misc]
        response.headers.setdefault("Cache-Control", "no-store")
        return response
