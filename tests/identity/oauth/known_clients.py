"""The client metadata of widely used MCP clients: redirect URIs and authentication methods.

Each document has the fields and values that its URL served in August and September 2026, as several sources quote it.
`uses` are the redirect URIs in the client's requests. The ID of one connector of ChatGPT is an example.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from joserfc.jwk import RSAKey

from tools_app.identity.oauth.devices import GRANT as DEVICE

CODE = ("authorization_code", "refresh_token")
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
# The key with which ChatGPT signs; a test serves the public key at the document's `jwks_uri`.
SIGNING_KEY = RSAKey.generate_key(2048, {"kid": "known"})
KEYS_URL = "https://chatgpt.com/oauth/jwks.json"


@dataclass(frozen=True)
class KnownClient:
    """A client with a metadata document, or without one, registered. `uses` are the redirect URIs it requests."""

    name: str
    redirect_uris: tuple[str, ...]
    uses: tuple[str, ...]
    document: str = ""
    auth_method: str = "none"
    grants: tuple[str, ...] = CODE
    host: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        """The client metadata."""
        fields = {
            "client_name": self.name,
            "redirect_uris": list(self.redirect_uris),
            "grant_types": list(self.grants),
            "response_types": ["code"],
            "token_endpoint_auth_method": self.auth_method,
            **self.more,
        }
        return {"client_id": self.document, **fields} if self.document else fields


CLAUDE = KnownClient(
    "Claude",
    ("https://claude.ai/api/mcp/auth_callback",),
    ("https://claude.ai/api/mcp/auth_callback",),
    document="https://claude.ai/oauth/mcp-oauth-client-metadata",
    # It exchanges identity assertions (ID-JAG), too.
    grants=(*CODE, JWT_BEARER),
    host="claude.ai",
    more={"client_uri": "https://claude.ai"},
)
CLAUDE_CODE = KnownClient(
    "Claude Code",
    ("http://localhost/callback", "http://127.0.0.1/callback"),
    ("http://localhost:54545/callback", "http://127.0.0.1:61000/callback"),
    document="https://claude.ai/oauth/claude-code-client-metadata",
    host="claude.ai",
    more={"client_uri": "https://claude.ai"},
)
CHATGPT_SAYS: Final = {
    "client_uri": "https://chatgpt.com/",
    "logo_uri": "https://persistent.oaistatic.com/sonic/misc/openai-logo.png",
    # Besides the preferred method. It signs for a server that accepts assertions, and reportedly does not fall back.
    "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
    "token_endpoint_auth_signing_alg": "RS256",
    "jwks_uri": KEYS_URL,
}
CHATGPT = KnownClient(
    "ChatGPT",
    ("https://chatgpt.com/connector_platform_oauth_redirect",),
    ("https://chatgpt.com/connector_platform_oauth_redirect",),
    document="https://chatgpt.com/oauth/client.json",
    auth_method="private_key_jwt",
    host="chatgpt.com",
    more=CHATGPT_SAYS,
)
CHATGPT_CONNECTOR = KnownClient(
    "ChatGPT",
    ("https://chatgpt.com/connector/oauth/a1B2c3D4e5F6",),
    ("https://chatgpt.com/connector/oauth/a1B2c3D4e5F6",),
    document="https://chatgpt.com/oauth/a1B2c3D4e5F6/client.json",
    auth_method="private_key_jwt",
    host="chatgpt.com",
    more=CHATGPT_SAYS,
)
CODEX = KnownClient(
    "Codex",
    ("http://127.0.0.1/callback", "http://localhost/callback"),
    ("http://127.0.0.1:1455/callback", "http://localhost:60123/callback"),
    document="https://chatgpt.com/oauth/codex/client.json",
    host="chatgpt.com",
)
VS_CODE = KnownClient(
    "Visual Studio Code",
    ("http://127.0.0.1:33418/", "https://vscode.dev/redirect"),
    # Another port if the default one is in use.
    ("http://127.0.0.1:33418/", "http://127.0.0.1:52011/", "https://vscode.dev/redirect"),
    document="https://vscode.dev/oauth/client-metadata.json",
    grants=(*CODE, DEVICE),
    host="vscode.dev",
    more={
        "application_type": "native",
        "client_uri": "https://vscode.dev/product",
        "logo_uri": "https://code.visualstudio.com/assets/branding/code-stable.png",
    },
)
OPENCODE = KnownClient(
    "opencode",
    ("http://127.0.0.1/callback", "http://localhost/callback"),
    ("http://127.0.0.1:19876/callback",),
    document="https://opencode.ai/oauth/opencode/client.json",
    host="opencode.ai",
    more={
        "application_type": "native",
        "client_uri": "https://opencode.ai",
        "logo_uri": "https://opencode.ai/web-app-manifest-512x512.png",
        "token_endpoint_auth_methods_supported": ["none"],
    },
)
CURSOR = KnownClient(
    "Cursor",
    (
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "https://www.cursor.com/agents/mcp/oauth/callback",
        "http://localhost:8787/callback",
    ),
    ("cursor://anysphere.cursor-mcp/oauth/callback", "http://localhost:8787/callback"),
)
VS_CODE_REGISTERED = KnownClient(
    "Visual Studio Code",
    ("http://127.0.0.1:33418/", "https://vscode.dev/redirect"),
    ("http://127.0.0.1:33418/", "http://127.0.0.1:52011/", "https://vscode.dev/redirect"),
    grants=(*CODE, DEVICE),
)
CLAUDE_REGISTERED = KnownClient("Claude", CLAUDE.redirect_uris, CLAUDE.uses)
DOCUMENTS = (CLAUDE, CLAUDE_CODE, CHATGPT, CHATGPT_CONNECTOR, CODEX, VS_CODE, OPENCODE)
REGISTERED = (CURSOR, VS_CODE_REGISTERED, CLAUDE_REGISTERED)
