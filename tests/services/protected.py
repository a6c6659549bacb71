"""python protected.py ISSUER URL: an MCP server that accepts signed tokens of one issuer with its own audience."""

import sys
from urllib.parse import urlsplit

import anyio.to_thread
import jwt
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

issuer, url = sys.argv[1:]
keys = jwt.PyJWKClient(f"{issuer}/jwks")


class Verifier:
    """Verifies tokens with the issuer's keys."""

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            key = await anyio.to_thread.run_sync(keys.get_signing_key_from_jwt, token)
            claims = jwt.decode(token, key, algorithms=["RS256"], audience=url, issuer=issuer)
        except jwt.PyJWTError:
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=url,
            subject=claims["sub"],
        )


server = MCPServer(
    "protected",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url=issuer, resource_server_url=url, required_scopes=["mcp:call"], validate_token_resource=True
    ),
)


@server.tool()
def who() -> str:
    """Who is signed in."""
    token = get_access_token()
    assert token is not None
    return str(token.subject)


server.run("streamable-http", port=urlsplit(url).port)
