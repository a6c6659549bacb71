"""A user with a browser, and an OAuth client that the user connects, both over plain HTTP."""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx

from tests.wire.client import NO_TLS

REDIRECT = "http://localhost:33418/callback"


@dataclass
class Form:
    """The first form of a page: its fields with their values, and the checkboxes that can be ticked."""

    fields: dict[str, str] = field(default_factory=dict)
    checkboxes: list[tuple[str, str, bool]] = field(default_factory=list)

    def checked_values(self, kind: str) -> list[str]:
        return [value for name, value, on in self.checkboxes if name == kind and on]


class _FormParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.form: Form | None = None
        self._open = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if (
            tag == "form"
            and self.form is None
            and values.get("method") == "post"
            and "logout" not in values.get("action", "")
        ):
            self.form, self._open = Form(), True
        elif tag == "input" and self._open and self.form is not None:
            if values.get("type") == "checkbox":
                self.form.checkboxes.append((values["name"], values.get("value", "on"), "checked" in values))
            elif "name" in values:
                self.form.fields[values["name"]] = values.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = False


def parse_form(page: str) -> Form:
    """Return the first form of a page."""
    parser = _FormParser()
    parser.feed(page)
    assert parser.form is not None, page
    return parser.form


class Person:
    """A user with an account and a browser."""

    def __init__(self, base: str, username: str, password: str) -> None:
        self.base, self.username, self.password = base, username, password
        self.browser = httpx.Client(base_url=base, timeout=30, trust_env=False, verify=NO_TLS)

    def close(self) -> None:
        self.browser.close()

    def open(self, url: str) -> httpx.Response:
        """Open a page of the hub, and log in if required. Redirects to applications are not followed."""
        response = self._follow(self.browser.get(url))
        if response.status_code == 200 and urlsplit(str(response.url)).path == "/admin/login/":
            fields = parse_form(response.text).fields
            data = {**fields, "username": self.username, "password": self.password}
            response = self._follow(self.browser.post(str(response.url), data=data, headers={"Origin": self.base}))
        return response

    def decide(
        self, page: httpx.Response, decision: str = "allow", tools: Sequence[str] | None = None, **fields: str
    ) -> httpx.Response:
        """Submit the consent page's form with only these tools ticked; None: with the page's defaults."""
        form = parse_form(page.text)
        data: dict[str, Any] = {**form.fields, "decision": decision, **fields}
        if tools is None:
            for name, value, on in form.checkboxes:
                if on:
                    data.setdefault(name, []).append(value)
        else:
            data["tool"] = list(tools)
        return self.browser.post(str(page.url), data=data, headers={"Origin": self.base})

    def connect(self, url: str, tools: Sequence[str] | None = None) -> str:
        """Open an application's authorization URL, allow the request, and return the redirect URL."""
        response = self.open(url)
        if response.status_code == 200:
            response = self.decide(response, tools=tools)
        assert response.status_code == 302, response.text
        return response.headers["location"]

    def _follow(self, response: httpx.Response) -> httpx.Response:
        while response.is_redirect and urljoin(str(response.url), response.headers["location"]).startswith(self.base):
            response = self.browser.get(urljoin(str(response.url), response.headers["location"]))
        return response


class Application:
    """A minimal OAuth client."""

    def __init__(self, base: str, resource: str = "", redirect_uri: str = REDIRECT) -> None:
        self.base, self.resource, self.redirect_uri = base, resource, redirect_uri
        self.http = httpx.Client(base_url=base, timeout=30, trust_env=False, verify=NO_TLS)
        self.client_id = ""
        self.secret = ""
        self.verifier = secrets.token_urlsafe(48)
        self.state = secrets.token_urlsafe(8)

    def close(self) -> None:
        self.http.close()

    def register(self, **metadata: Any) -> httpx.Response:
        """Register, by default as a public client."""
        metadata_ = {
            "client_name": "Test application",
            "redirect_uris": [self.redirect_uri],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
            **metadata,
        }
        response = self.http.post("/oauth/register", json=metadata_)
        if response.status_code == 201:
            self.client_id, self.secret = response.json()["client_id"], response.json().get("client_secret", "")
        return response

    def url(self, **changes: str | None) -> str:
        """Return the authorization URL. A change to None omits a parameter."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        parameters: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": self.resource or None,
            **changes,
        }
        query = httpx.QueryParams({name: value for name, value in parameters.items() if value is not None})
        return f"{self.base}/oauth/authorize?{query}"

    def token(self, **fields: str) -> httpx.Response:
        """Send a request to the token endpoint."""
        data = {"client_id": self.client_id, **fields}
        if self.resource:
            data.setdefault("resource", self.resource)
        return self.http.post("/oauth/token", data=data)

    def exchange(self, location: str, **changes: str) -> httpx.Response:
        """Exchange the authorization code in the redirect URL for tokens."""
        fields = {
            "grant_type": "authorization_code",
            "code": redirect_parameters(location)["code"],
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
        }
        return self.token(**{**fields, **changes})

    def refresh(self, token: str, **changes: str) -> httpx.Response:
        """Renew the tokens."""
        return self.token(grant_type="refresh_token", refresh_token=token, **changes)

    def get_tokens(
        self, person: Person, tools: Sequence[str] | None = None, **parameters: str | None
    ) -> dict[str, Any]:
        """Register, let the person allow the request, and return the tokens."""
        if not self.client_id:
            assert self.register().status_code == 201
        response = self.exchange(person.connect(self.url(**parameters), tools))
        assert response.status_code == 200, response.text
        tokens: dict[str, Any] = response.json()
        return tokens


def redirect_parameters(location: str) -> dict[str, str]:
    """Return the query parameters of a redirect to the application."""
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
