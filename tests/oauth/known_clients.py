"""What the clients that people use say of themselves: where they return to, and how they sign in.

Each document has the fields and values that its URL served in August and September 2026, as several who read it quote
it. `uses` are the addresses that the client then asks for. The ID of a single connector of ChatGPT stands in.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from joserfc.jwk import RSAKey

from tools_app.access.oauth.devices import GRANT as DEVICE

CODE = ("authorization_code", "refresh_token")
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
# The key with which ChatGPT signs; a test serves its public part at the URL that the document names.
SIGNING_KEY = RSAKey.generate_key(2048, {"kid": "known"})
KEYS_URL = "https://chatgpt.com/oauth/jwks.json"


@dataclass(frozen=True)
class KnownClient:
    """A client by its metadata document, or without one by registration. `uses` are the redirects it asks for."""

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
        """What the client says of itself."""
        said = {
            "client_name": self.name,
            "redirect_uris": list(self.redirect_uris),
            "grant_types": list(self.grants),
            "response_types": ["code"],
            "token_endpoint_auth_method": self.auth_method,
            **self.more,
        }
        return {"client_id": self.document, **said} if self.document else said


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
    # Beside the one that it prefers. It signs for a server that takes assertions, and is said not to fall back.
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
    # Another port where its own is in use.
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
