"""Checks of sign-in through the proxies, as clients do it: `--oauth` of the command.

Clients compare URLs to the letter, and say little when something differs. The check registers no client and signs in no
person.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from tools_app.core.http.client import Outbound, exchange
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.doctor.endpoint import MODERN_VERSION, request_policy
from tools_app.doctor.findings import Finding, Status, grade, ok, problem
from tools_app.identity.oauth import redirects, resources
from tools_app.tenants.keys import ACCESS_PREFIX

# A request that needs no session.
DISCOVER_REQUEST: Final = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "server/discover",
        "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        },
    }
).encode()
JSON_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
MCP_HEADERS: Final = {**JSON_HEADERS, "MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "server/discover"}
FORM_HEADERS: Final = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
FIX_PUBLIC_URL: Final = (
    "The hub sees another scheme or host than its clients. Set MCPHUB_HTTPS=1 behind a proxy that ends TLS, and let it "
    "forward Host and X-Forwarded-Proto."
)
FIX_PATHS: Final = "Let the proxy forward /.well-known/, /oauth/, /device and /connections to the hub, unchanged."
FIX_FIREWALL: Final = "Let the proxy or firewall pass POST requests without cookies to this path, from every network."
FIX_AUTHORIZATION: Final = "Let the proxy pass the header Authorization on, unchanged."
CHALLENGE_HEADER: Final = "www-authenticate"
# As an access token begins. It is no token of the hub.
UNKNOWN_TOKEN: Final = f"{ACCESS_PREFIX}doctor"
# How the servers of Claude and ChatGPT and the libraries of others name themselves.
USER_AGENTS: Final = ("Claude-User", "openai-mcp/1.0.0", "python-httpx/0.28.1", "node", "Cursor")


@dataclass(frozen=True)
class HttpResponse:
    """A response: its status, headers by lower-case name, and body as JSON, if it is that."""

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any] | None


@dataclass
class SignInChecks:
    """Sign-in at the endpoint `url`."""

    url: str

    def checks(self) -> Iterator[Finding]:
        """Run the checks in the order in which a client connects. The first problem ends them."""
        yield self._scheme()
        try:
            yield from self._steps()
        except (RequestFailed, InvalidUrl) as failure:
            yield problem("sign-in", f"{self.origin} is unreachable: {failure}", "Check the URL and its certificate.")

    @property
    def origin(self) -> str:
        """The origin of the URL, which is the issuer."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def _steps(self) -> Iterator[Finding]:
        challenge = self._challenge(self.url)
        yield challenge
        yield self._header()
        yield self._agents()
        other_url = self.url[:-1] if self.url.endswith("/") else f"{self.url}/"
        resource = self._resource(self.url)
        yield resource
        differs = any(
            result.status is not Status.OK for result in (self._challenge(other_url), self._resource(other_url))
        )
        text = f"{other_url} is answered {'differently' if differs else 'alike'}"
        yield grade("sign-in: slash", text, FIX_PATHS, is_warning=differs)
        finding, server = self._server()
        yield finding
        if server is None:
            return
        yield self._openid_configuration(server)
        yield self._unknown_metadata()
        yield self._features(server)
        yield self._browsers(server)
        yield self._endpoint_finding("registration", server, "registration_endpoint", b"{}", JSON_HEADERS)
        yield self._endpoint_finding("token", server, "token_endpoint", b"grant_type=none", FORM_HEADERS)
        yield self._authorization(server)

    def _scheme(self) -> Finding:
        parts = urlsplit(self.url)
        is_plain = parts.scheme != "https" and parts.hostname not in redirects.LOOPBACK
        return grade(
            "sign-in: https",
            "the URL begins with http://" if is_plain else "the URL is one that clients accept",
            "Clients sign in over HTTPS only, except on their own computer.",
            is_problem=is_plain,
        )

    def _challenge(self, url: str) -> Finding:
        """Check that a request without a key is told where to sign in (RFC 9728, section 5.1)."""
        response = self._request("POST", url, MCP_HEADERS, DISCOVER_REQUEST)
        if response.status == HTTPStatus.OK:
            return ok("sign-in: challenge", "the tenant is public: clients connect without signing in")
        challenge = response.headers.get(CHALLENGE_HEADER, "")
        expected = f'resource_metadata="{self._metadata_url(url)}"'
        if response.status != HTTPStatus.UNAUTHORIZED or "resource_metadata=" not in challenge:
            text = f"a request without a key is answered with HTTP {response.status} and no place to sign in"
            return problem("sign-in: challenge", text, "The URL ends in /mcp, and proxies pass WWW-Authenticate on.")
        if expected not in challenge:
            return problem("sign-in: challenge", f"clients are sent to another URL: {challenge}", FIX_PUBLIC_URL)
        return ok("sign-in: challenge", "clients are told where to sign in")

    def _resource(self, url: str) -> Finding:
        """Check the metadata of the endpoint. Clients compare its resource with the URL that they were given."""
        response = self._request("GET", self._metadata_url(url))
        if response.status != HTTPStatus.OK or response.body is None:
            return problem("sign-in: resource", f"its metadata is answered with HTTP {response.status}", FIX_PATHS)
        if response.body.get("resource") != url or response.body.get("authorization_servers") != [self.origin]:
            return problem("sign-in: resource", f"its metadata is of {response.body.get('resource')}", FIX_PUBLIC_URL)
        return ok("sign-in: resource", f"its metadata names {url}")

    def _server(self) -> tuple[Finding, dict[str, Any] | None]:
        """Check the metadata of the authorization server (RFC 8414, section 3.3)."""
        response = self._request("GET", f"{self.origin}/.well-known/oauth-authorization-server")
        if response.status != HTTPStatus.OK or response.body is None:
            text = f"the metadata of the authorization server is answered with HTTP {response.status}"
            return problem("sign-in: server", text, FIX_PATHS), None
        if response.body.get("issuer") != self.origin:
            return problem("sign-in: server", f"the issuer is {response.body.get('issuer')}", FIX_PUBLIC_URL), None
        return ok("sign-in: server", f"the issuer is {self.origin}"), response.body

    def _header(self) -> Finding:
        """Check that access tokens arrive. Some proxies take the header for a login at themselves, and drop it."""
        response = self._request(
            "POST", self.url, {**MCP_HEADERS, "Authorization": f"Bearer {UNKNOWN_TOKEN}"}, DISCOVER_REQUEST
        )
        is_received = response.status == HTTPStatus.UNAUTHORIZED and "invalid_token" in response.headers.get(
            CHALLENGE_HEADER, ""
        )
        text = f"an unknown token is answered with HTTP {response.status}, as if there were none"
        return grade(
            "sign-in: header", "tokens arrive" if is_received else text, FIX_AUTHORIZATION, is_problem=not is_received
        )

    def _agents(self) -> Finding:
        """Check that firewalls let the clients through, which they tell by what these call themselves."""
        refused = {}
        for agent in USER_AGENTS:
            status = self._request("POST", self.url, {**MCP_HEADERS, "User-Agent": agent}, DISCOVER_REQUEST).status
            if status not in (HTTPStatus.OK, HTTPStatus.UNAUTHORIZED):
                refused[agent] = int(status)
        refused_list = ", ".join(f"{agent} (HTTP {status})" for agent, status in refused.items())
        text = (
            f"clients are refused by their name: {refused_list}" if refused else "clients are let through by every name"
        )
        return grade("sign-in: firewall", text, FIX_FIREWALL, is_problem=bool(refused))

    def _openid_configuration(self, server: Mapping[str, Any]) -> Finding:
        """Check the metadata at the place of OpenID Connect, where some clients look first."""
        response = self._request("GET", f"{self.origin}/.well-known/openid-configuration")
        is_same = response.body is not None and all(response.body.get(name) == value for name, value in server.items())
        text = "the same metadata is where OpenID Connect has it"
        if not is_same:
            text = f"the place of OpenID Connect is answered with HTTP {response.status} and other metadata"
        return grade("sign-in: openid", text, FIX_PATHS, is_problem=not is_same)

    def _unknown_metadata(self) -> Finding:
        """Check that metadata that does not exist is not found. Some proxies answer every URL with a page."""
        status = self._request("GET", f"{self.origin}/.well-known/oauth-authorization-server/doctor").status
        text = f"metadata that does not exist is answered with HTTP {status}"
        return grade("sign-in: unknown", text, FIX_PATHS, is_problem=status != HTTPStatus.NOT_FOUND)

    def _features(self, server: Mapping[str, Any]) -> Finding:
        has_all = (
            server.get("code_challenge_methods_supported") == ["S256"]
            and "none" in server.get("token_endpoint_auth_methods_supported", ())
            and server.get("client_id_metadata_document_supported") is True
        )
        text = "clients find PKCE, public clients and metadata documents"
        return grade("sign-in: features", text, "A proxy changes the metadata. Let it pass.", is_problem=not has_all)

    def _browsers(self, server: Mapping[str, Any]) -> Finding:
        response = self._request("OPTIONS", str(server.get("token_endpoint")), {"Origin": "https://client.example"})
        is_open = response.headers.get("access-control-allow-origin") == "*"
        text = "clients in browsers may ask for tokens" if is_open else "clients in browsers may not ask for tokens"
        return grade("sign-in: browsers", text, FIX_FIREWALL, is_warning=not is_open)

    def _endpoint_finding(
        self, about: str, server: Mapping[str, Any], endpoint: str, body: bytes, headers: Mapping[str, str]
    ) -> Finding:
        """Send an invalid request: the hub's own error shows that it arrives."""
        response = self._request("POST", str(server.get(endpoint)), headers, body)
        is_received = (
            response.status == HTTPStatus.BAD_REQUEST and response.body is not None and "error" in response.body
        )
        text = (
            "requests arrive" if is_received else f"a request is answered with HTTP {response.status}, not by the hub"
        )
        return grade(f"sign-in: {about}", text, FIX_FIREWALL, is_problem=not is_received)

    def _authorization(self, server: Mapping[str, Any]) -> Finding:
        query = urlencode({"client_id": "doctor", "response_type": "code"})
        response = self._request("GET", f"{server.get('authorization_endpoint')}?{query}", {"Accept": "text/html"})
        is_received = response.status == HTTPStatus.BAD_REQUEST
        text = (
            "people reach the page"
            if is_received
            else f"the page is answered with HTTP {response.status}, not by the hub"
        )
        return grade("sign-in: page", text, FIX_PATHS, is_problem=not is_received)

    def _metadata_url(self, url: str) -> str:
        return resources.metadata_url(self.origin, urlsplit(url).path)

    def _request(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpResponse:
        request_headers = {"User-Agent": "mcphub-doctor", **(headers or {})}
        reply = asyncio.run(
            exchange(Outbound(method, parse_url(url), tuple(request_headers.items()), body), request_policy())
        )
        return HttpResponse(reply.status, reply.headers, _object(reply.body))


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
