"""Who sends a request: the person of a browser's session, or of a personal token."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from tools_app.auth import tokens
from tools_app.models import PersonalToken

NO_GOOD = "This token is unknown, expired or revoked. Make one under My tokens in the admin."
API_KEY = (
    "This is an API key of an MCP client, which this API does not take. It takes personal tokens:"
    " make one under My tokens in the admin."
)
SCHEME = "bearer"


class TokenLogin(BaseAuthentication):
    """`Authorization: Bearer mcphubt_...`."""

    def authenticate(self, request: Request) -> tuple[Any, PersonalToken] | None:
        """The person and the token; None without one. Raises AuthenticationFailed for one that is no good."""
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != SCHEME:
            raise AuthenticationFailed("Write `Authorization: Bearer` and a personal token.")
        row = tokens.find(credential.strip())
        if row is None:
            raise AuthenticationFailed(API_KEY if tokens.is_api_key(credential.strip()) else NO_GOOD)
        return row.person, row

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return 'Bearer realm="mcphub"'


class TokenLoginInSchema(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The same, as the OpenAPI document says it."""

    target_class = TokenLogin
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """An HTTP bearer scheme."""
        return {"type": "http", "scheme": SCHEME, "description": "A personal token, which begins with `mcphubt_`."}
