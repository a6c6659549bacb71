"""Checks of sign-in through the proxies, as clients do it: `--oauth` of the command.

Clients compare URLs to the letter, and say little when something differs. Nothing is registered and nobody signs in.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpcore

from tools_app.access.oauth import redirects, resources
from tools_app.doctor.findings import Finding, Status, graded, ok, problem

SECONDS: Final = 10.0
MAX_BYTES: Final = 256 * 1024
UNREACHABLE: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)
PING: Final = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
JSON: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
PUBLIC_URL: Final = (
    "The hub sees another scheme or host than its clients. Set MCPHUB_HTTPS=1 behind a proxy that ends TLS, and let it "
    "forward Host and X-Forwarded-Proto."
)
FORWARD: Final = "Let the proxy forward /.well-known/, /oauth/, /device and /connections to the hub, unchanged."
FIREWALL: Final = "Let the proxy or firewall pass POST requests without cookies to this path, from every network."


@dataclass(frozen=True)
class Answer:
    """A response: its status, headers by lower-case name, and body as JSON, if it is that."""

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any] | None


@dataclass
class SignIn:
    """Sign-in at the endpoint `url`."""

    url: str
    pool: httpcore.ConnectionPool = field(default_factory=httpcore.ConnectionPool)

    def checks(self) -> Iterator[Finding]:
        """Run the checks in the order in which a client connects. The first problem ends them."""
        with closing(self.pool):
            yield self._scheme()
            try:
                yield from self._steps()
            except UNREACHABLE as failure:
                text = f"{self.origin} is unreachable: {type(failure).__name__} {failure}"
                yield problem("sign-in", text, "Check the URL and its certificate.")

    @property
    def origin(self) -> str:
        """The origin of the URL, which is the issuer."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def _steps(self) -> Iterator[Finding]:
        challenged = self._challenge(self.url)
        yield challenged
        slash = self.url[:-1] if self.url.endswith("/") else f"{self.url}/"
        resource = self._resource(self.url)
        yield resource
        differs = any(one.status is not Status.OK for one in (self._challenge(slash), self._resource(slash)))
        text = f"{slash} is answered {'differently' if differs else 'alike'}"
        yield graded("sign-in: slash", text, FORWARD, is_warning=differs)
        found, server = self._server()
        yield found
        if server is None:
            return
        yield self._features(server)
        yield self._browsers(server)
        yield self._posted("registration", server, "registration_endpoint", b"{}", JSON)
        yield self._posted("token", server, "token_endpoint", b"grant_type=none", FORM)
        yield self._authorization(server)

    def _scheme(self) -> Finding:
        parts = urlsplit(self.url)
        is_plain = parts.scheme != "https" and parts.hostname not in redirects.LOOPBACK
        return graded(
            "sign-in: https",
            "the URL begins with http://" if is_plain else "the URL is one that clients accept",
            "Clients sign in over HTTPS only, except on their own computer.",
            is_problem=is_plain,
        )

    def _challenge(self, url: str) -> Finding:
        """Check that a request without a key is told where to sign in (RFC 9728, section 5.1)."""
        answer = self._ask("POST", url, JSON, PING)
        if answer.status == HTTPStatus.OK:
            return ok("sign-in: challenge", "the tenant is public: clients connect without signing in")
        told = answer.headers.get("www-authenticate", "")
        expected = f'resource_metadata="{self._metadata_url(url)}"'
        if answer.status != HTTPStatus.UNAUTHORIZED or "resource_metadata=" not in told:
            text = f"a request without a key is answered with HTTP {answer.status} and no place to sign in"
            return problem("sign-in: challenge", text, "The URL ends in /mcp, and proxies pass WWW-Authenticate on.")
        if expected not in told:
            return problem("sign-in: challenge", f"clients are sent to another URL: {told}", PUBLIC_URL)
        return ok("sign-in: challenge", "clients are told where to sign in")

    def _resource(self, url: str) -> Finding:
        """Check the metadata of the endpoint. Clients compare its resource with the URL that they were given."""
        answer = self._ask("GET", self._metadata_url(url))
        if answer.status != HTTPStatus.OK or answer.body is None:
            return problem("sign-in: resource", f"its metadata is answered with HTTP {answer.status}", FORWARD)
        if answer.body.get("resource") != url or answer.body.get("authorization_servers") != [self.origin]:
            return problem("sign-in: resource", f"its metadata is of {answer.body.get('resource')}", PUBLIC_URL)
        return ok("sign-in: resource", f"its metadata names {url}")

    def _server(self) -> tuple[Finding, dict[str, Any] | None]:
        """Check the metadata of the authorization server (RFC 8414, section 3.3)."""
        answer = self._ask("GET", f"{self.origin}/.well-known/oauth-authorization-server")
        if answer.status != HTTPStatus.OK or answer.body is None:
            text = f"the metadata of the authorization server is answered with HTTP {answer.status}"
            return problem("sign-in: server", text, FORWARD), None
        if answer.body.get("issuer") != self.origin:
            return problem("sign-in: server", f"the issuer is {answer.body.get('issuer')}", PUBLIC_URL), None
        return ok("sign-in: server", f"the issuer is {self.origin}"), answer.body

    def _features(self, server: Mapping[str, Any]) -> Finding:
        has_all = (
            server.get("code_challenge_methods_supported") == ["S256"]
            and "none" in server.get("token_endpoint_auth_methods_supported", ())
            and server.get("client_id_metadata_document_supported") is True
        )
        text = "clients find PKCE, public clients and metadata documents"
        return graded("sign-in: features", text, "A proxy changes the metadata. Let it pass.", is_problem=not has_all)

    def _browsers(self, server: Mapping[str, Any]) -> Finding:
        answer = self._ask("OPTIONS", str(server.get("token_endpoint")), {"Origin": "https://client.example"})
        is_open = answer.headers.get("access-control-allow-origin") == "*"
        text = "clients in browsers may ask for tokens" if is_open else "clients in browsers may not ask for tokens"
        return graded("sign-in: browsers", text, FIREWALL, is_warning=not is_open)

    def _posted(
        self, about: str, server: Mapping[str, Any], endpoint: str, body: bytes, headers: Mapping[str, str]
    ) -> Finding:
        """Send an invalid request: the hub's own error shows that it arrives."""
        answer = self._ask("POST", str(server.get(endpoint)), headers, body)
        arrives = answer.status == HTTPStatus.BAD_REQUEST and answer.body is not None and "error" in answer.body
        text = "requests arrive" if arrives else f"a request is answered with HTTP {answer.status}, not by the hub"
        return graded(f"sign-in: {about}", text, FIREWALL, is_problem=not arrives)

    def _authorization(self, server: Mapping[str, Any]) -> Finding:
        query = urlencode({"client_id": "doctor", "response_type": "code"})
        answer = self._ask("GET", f"{server.get('authorization_endpoint')}?{query}", {"Accept": "text/html"})
        arrives = answer.status == HTTPStatus.BAD_REQUEST
        text = "people reach the page" if arrives else f"the page is answered with HTTP {answer.status}, not by the hub"
        return graded("sign-in: page", text, FORWARD, is_problem=not arrives)

    def _metadata_url(self, url: str) -> str:
        return resources.metadata_url(self.origin, urlsplit(url).path)

    def _ask(self, verb: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> Answer:
        sent = {"Host": urlsplit(url).netloc, "User-Agent": "mcphub-doctor", **(headers or {})}
        timeout = {"connect": SECONDS, "read": SECONDS, "write": SECONDS, "pool": SECONDS}
        with self.pool.stream(
            verb, url, headers=list(sent.items()), content=body, extensions={"timeout": timeout}
        ) as answer:
            content = b""
            for chunk in answer.iter_stream():
                content += chunk
                if len(content) > MAX_BYTES:
                    break
        told = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
        return Answer(answer.status, told, _object(content))


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
