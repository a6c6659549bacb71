"""A person at a browser, and an application that the person connects: both speak HTTP only."""

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
    """The first form of a page: its fields with their values, and the boxes that can be ticked."""

    fields: dict[str, str] = field(default_factory=dict)
    boxes: list[tuple[str, str, bool]] = field(default_factory=list)

    def ticked(self, kind: str) -> list[str]:
        return [value for name, value, on in self.boxes if name == kind and on]


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.form: Form | None = None
        self._open = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        if (
            tag == "form"
            and self.form is None
            and found.get("method") == "post"
            and "logout" not in found.get("action", "")
        ):
            self.form, self._open = Form(), True
        elif tag == "input" and self._open and self.form is not None:
            if found.get("type") == "checkbox":
                self.form.boxes.append((found["name"], found.get("value", "on"), "checked" in found))
            elif "name" in found:
                self.form.fields[found["name"]] = found.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = False


def form_of(page: str) -> Form:
    """Return the form of a page that a person fills in."""
    parser = _Forms()
    parser.feed(page)
    assert parser.form is not None, page
    return parser.form


class Person:
    """Somebody with an account and a browser."""

    def __init__(self, base: str, username: str, password: str) -> None:
        self.base, self.username, self.password = base, username, password
        self.browser = httpx.Client(base_url=base, timeout=30, trust_env=False, verify=NO_TLS)

    def close(self) -> None:
        self.browser.close()

    def open(self, url: str) -> httpx.Response:
        """Open a page of the hub, and log in where it asks for that. Redirects to applications are not followed."""
        answer = self._follow(self.browser.get(url))
        if answer.status_code == 200 and urlsplit(str(answer.url)).path == "/admin/login/":
            fields = form_of(answer.text).fields
            sent = {**fields, "username": self.username, "password": self.password}
            answer = self._follow(self.browser.post(str(answer.url), data=sent, headers={"Origin": self.base}))
        return answer

    def decide(
        self, page: httpx.Response, decision: str = "allow", tools: Sequence[str] | None = None, **fields: str
    ) -> httpx.Response:
        """Send the consent page's form, with these tools ticked and nothing else; None: as the page is."""
        form = form_of(page.text)
        data: dict[str, Any] = {**form.fields, "decision": decision, **fields}
        if tools is None:
            for name, value, on in form.boxes:
                if on:
                    data.setdefault(name, []).append(value)
        else:
            data["tool"] = list(tools)
        return self.browser.post(str(page.url), data=data, headers={"Origin": self.base})

    def connect(self, url: str, tools: Sequence[str] | None = None) -> str:
        """Open an application's URL, allow what it asks for, and return where the browser is sent."""
        answer = self.open(url)
        if answer.status_code == 200:
            answer = self.decide(answer, tools=tools)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    def _follow(self, answer: httpx.Response) -> httpx.Response:
        while answer.is_redirect and urljoin(str(answer.url), answer.headers["location"]).startswith(self.base):
            answer = self.browser.get(urljoin(str(answer.url), answer.headers["location"]))
        return answer


class Application:
    """An OAuth client, as small as it can be."""

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
        said = {
            "client_name": "Test application",
            "redirect_uris": [self.redirect_uri],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
            **metadata,
        }
        answer = self.http.post("/oauth/register", json=said)
        if answer.status_code == 201:
            self.client_id, self.secret = answer.json()["client_id"], answer.json().get("client_secret", "")
        return answer

    def url(self, **changes: str | None) -> str:
        """Return the address that it opens in the person's browser. A change to None leaves a parameter out."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        asked: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": self.resource or None,
            **changes,
        }
        query = httpx.QueryParams({name: value for name, value in asked.items() if value is not None})
        return f"{self.base}/oauth/authorize?{query}"

    def token(self, **fields: str) -> httpx.Response:
        """Send a request to the token endpoint."""
        data = {"client_id": self.client_id, **fields}
        if self.resource:
            data.setdefault("resource", self.resource)
        return self.http.post("/oauth/token", data=data)

    def exchange(self, location: str, **changes: str) -> httpx.Response:
        """Exchange the code with which the browser came back."""
        fields = {
            "grant_type": "authorization_code",
            "code": answer_of(location)["code"],
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
        }
        return self.token(**{**fields, **changes})

    def refresh(self, token: str, **changes: str) -> httpx.Response:
        """Renew the tokens."""
        return self.token(grant_type="refresh_token", refresh_token=token, **changes)

    def connected(self, person: Person, tools: Sequence[str] | None = None, **asked: str | None) -> dict[str, Any]:
        """Register, let the person allow it, and return the tokens."""
        if not self.client_id:
            assert self.register().status_code == 201
        answer = self.exchange(person.connect(self.url(**asked), tools))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def answer_of(location: str) -> dict[str, str]:
    """Return the parameters that a redirect brings to the application."""
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
