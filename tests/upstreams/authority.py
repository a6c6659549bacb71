"""An upstream that requires a token, and the authorization server that issues it, in one service on loopback."""

import base64
import hashlib
import json
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.upstreams import scripted
from tests.web_services import WAIT_SECONDS, Received, Service, http_response

JSON = "application/json"


def digest(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


@dataclass
class AuthorizationServer:
    """Its metadata (`resource`, `server`), the tokens that it accepts, and the form of each token request."""

    service: Service | None = None
    resource: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    challenge: str = ""
    valid_tokens: set[str] = field(default_factory=set)
    code_challenges: dict[str, str] = field(default_factory=dict)
    forms: list[dict[str, str]] = field(default_factory=list)
    registered: int = 0
    token_error: str = ""
    expires_in: int | str | None = 3600
    # A refresh sets `refresh_began` and waits for `may_refresh`.
    refresh_began: threading.Event = field(default_factory=threading.Event)
    may_refresh: threading.Event = field(default_factory=threading.Event)
    call_response: bytes = b""
    scope: str = "read"
    padding: str = ""
    # The path of its metadata.
    metadata_path: str = "/.well-known/oauth-authorization-server"
    # Paths that respond with 404.
    missing_paths: frozenset[str] = frozenset()

    @property
    def url(self) -> str:
        assert self.service is not None
        return self.service.url

    def started(self, service: Service) -> "AuthorizationServer":
        self.service = service
        self.may_refresh.set()
        self.challenge = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp", scope="read"'
        self.resource = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        self.server = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return self

    def answer(self, request: Received) -> Any:
        match "" if request.target in self.missing_paths else request.target:
            case "/.well-known/oauth-protected-resource/mcp":
                return self._json(self.resource)
            case self.metadata_path:
                return self._json(self.server)
            case "/register":
                self.registered += 1
                return self._json({"client_id": f"client-{self.registered}"}, 201)
            case "/token":
                return self._token(request)
            case "/mcp":
                return self._called(request)
            case "/authorize":
                status = 400
            case _:
                status = 404
        return self._json({}, status)

    def allow(self, address: str) -> dict[str, str]:
        """Authorize the request `address`, and return the parameters of the callback."""
        parameters = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert parameters["code_challenge_method"] == "S256"
        assert parameters["resource"] == self.resource["resource"]
        code = f"code-{len(self.code_challenges)}"
        self.code_challenges[code] = parameters["code_challenge"]
        self.scope = parameters.get("scope", "")
        return {"code": code, "state": parameters["state"], "iss": self.server["issuer"]}

    def _token(self, request: Received) -> bytes:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        self.forms.append(form)
        if self.token_error:
            return self._json({"error": self.token_error}, 400)
        if form["grant_type"] == "refresh_token":
            self.refresh_began.set()
            assert self.may_refresh.wait(WAIT_SECONDS)
        else:
            assert self.code_challenges.pop(form["code"]) == digest(form["code_verifier"])
        number = len(self.forms)
        self.valid_tokens = {f"token-{number}"}
        issued = {"access_token": f"token-{number}", "token_type": "Bearer", "expires_in": self.expires_in}
        return self._json({**issued, "refresh_token": f"refresh-{number}", "scope": self.scope})

    def _called(self, request: Received) -> Any:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.valid_tokens:
            return http_response(401, b"{}", JSON, WWW_Authenticate=self.challenge, Connection="close")
        if self.call_response and b"tools/call" in request.body:
            return self.call_response
        return scripted.modern(lambda _request, _message: f"looked with {len(token)}")(request)

    def _json(self, document: dict[str, Any], status: int = 200) -> bytes:
        body = json.dumps({**document, **({"padding": self.padding} if self.padding else {})}).encode()
        return http_response(status, body, JSON, Connection="close")
