"""A fake OpenID Connect provider with configurable claims, and a browser that signs in with it."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import uuid4

from django.test import Client
from django.urls import reverse
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey

from tools_app.identity.issuers import provider
from tools_app.identity.oauth.key_sets import REGISTRY
from tools_app.models import Issuer, Tenant

LOOPBACK = ["127.0.0.0/8", "::1/128"]
RULES = [
    {"claims": {"groups": ["mcp-admins"]}, "role": "admin"},
    {"claims": {"groups": ["staff-*"]}, "role": "auditor"},
]


def new_key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": uuid4().hex, "alg": "ES256"})


@dataclass
class Provider:
    """The provider's state. `lies` replace claims of its tokens; `key` signs, `published` is its key set."""

    url: str = ""
    people: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)
    refreshable: dict[str, str] = field(default_factory=dict)
    lies: dict[str, Any] = field(default_factory=dict)
    key: ECKey | OKPKey = field(default_factory=new_key)
    algorithm: str = "ES256"
    published: list[ECKey] = field(default_factory=list)
    fails: int = 0
    # The response of the UserInfo endpoint for everyone; None: there is no such endpoint.
    user_info: dict[str, Any] | bytes | None = None
    seen: list[str] = field(default_factory=list)

    def set(self, subject: str, **claims: Any) -> None:
        self.people[subject] = claims

    def forget(self, subject: str) -> None:
        """Revoke the refresh tokens of a person who leaves the company."""
        self.refreshable = {token: who for token, who in self.refreshable.items() if who != subject}

    def authorize(self, url: str, subject: str | None) -> str:
        """Submit the provider's login page; the subject None refuses. Return the redirect URL."""
        request = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()}
        parameters = {"state": request["state"]}
        if subject is None:
            return f"{request['redirect_uri']}?{urlencode(parameters | {'error': 'access_denied'})}"
        code = uuid4().hex
        self.codes[code] = request | {"sub": subject}
        return f"{request['redirect_uri']}?{urlencode(parameters | {'code': code})}"

    def token(self, subject: str, **more: Any) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": "hub", "sub": subject, "iat": now, "exp": now + 300}
        claims |= self.people.get(subject, {}) | more | self.lies
        header = {"alg": self.algorithm, "kid": self.key.kid, "typ": claims.pop("typ", "JWT")}
        return jwt.encode(header, claims, self.key, registry=REGISTRY)

    def configuration(self) -> dict[str, Any]:
        metadata = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        return metadata if self.user_info is None else {**metadata, "userinfo_endpoint": f"{self.url}/me"}

    def keys(self) -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in self.published or [self.key]]}

    def token_response(self, form: dict[str, str]) -> dict[str, Any] | None:
        """The response of the token endpoint; None is invalid_grant."""
        if form["grant_type"] == "refresh_token":
            subject, extra = self.refreshable.pop(form["refresh_token"], None), {}
        else:
            request = self.codes.pop(form["code"], {})
            challenge = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
            subject = request.get("sub") if challenge.decode() == request.get("code_challenge") else None
            extra = {"nonce": request.get("nonce")}
        if subject is None:
            return None
        refresh = uuid4().hex
        self.refreshable[refresh] = subject
        return {"access_token": "x", "id_token": self.token(subject, **extra), "refresh_token": refresh}


@contextmanager
def running_provider() -> Iterator[Provider]:
    company = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/me":
                company.seen.append(self.headers.get("Authorization", ""))
                self._answer(200, company.user_info)
                return
            pages = {"/.well-known/openid-configuration": company.configuration, "/keys": company.keys}
            self._answer(company.fails or 200, pages[self.path]())

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            company.seen.append(self.headers.get("Authorization", ""))
            body = company.token_response({name: value[0] for name, value in parse_qs(text).items()})
            self._answer(company.fails or (200 if body else 400), body or {"error": "invalid_grant"})

        def _answer(self, status: int, body: Any) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            """Log no requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    company.url = f"http://localhost:{server.server_port}"
    try:
        yield company
    finally:
        server.shutdown()
        server.server_close()


def issuer_of(tenant: Tenant, provider_url: str, **fields: Any) -> Issuer:
    """An issuer of a tenant that may call this machine."""
    tenant.allowed_networks = LOOPBACK
    tenant.save()
    values: dict[str, Any] = {
        "name": "Acme Login",
        "issuer": provider_url,
        "client_id": "hub",
        "rules": RULES,
        **fields,
    }
    row = Issuer(tenant=tenant, **values)
    provider.seal_secret(row, "hush")
    row.save()
    return row


def sign_in(browser: Client, issuer: Issuer, company: Provider, subject: str | None, to: str = "") -> Any:
    """Sign in as a person of the company; return the hub's last response."""
    begin = reverse("sign-in-begin", args=[issuer.tenant.slug, issuer.pk])
    response = browser.post(begin, {"next": to})
    assert response.status_code == 302, response.content
    back = urlsplit(company.authorize(response["Location"], subject))
    return browser.get(f"{back.path}?{back.query}")
