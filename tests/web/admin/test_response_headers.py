"""The security headers of every URL, and what they allow pages and downloads."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.urls.resolvers import RegexPattern
from unfold.settings import CONFIG_DEFAULTS
from unfold.utils import convert_color

import tools_app
from tools_app.models import Resource, ResourceKind
from tools_app.web.middleware import INERT, response_headers

# It asks for every page.
pytestmark = pytest.mark.slow

SAMPLES = {"int": "1", "uuid": str(uuid4()), "path": "x", "slug": "x", "str": "x"}
POLICY = "Content-Security-Policy"
EVERYWHERE = {"frame-ancestors 'none'", "base-uri 'none'"}
OF_PAGES = EVERYWHERE | {
    "default-src 'none'",
    "object-src 'none'",
    "form-action 'self'",
    "connect-src 'self'",
    "script-src-attr 'none'",
    "style-src-elem 'self'",
}
STATIC = Path(tools_app.__file__).parent / "static" / "tools_app"


def addresses(patterns: list[Any], before: str = "/") -> Iterator[str]:
    """A URL for each pattern of the resolver."""
    for pattern in patterns:
        here = before + address_of(pattern)
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns, here)
        else:
            yield here


def address_of(pattern: URLPattern | URLResolver) -> str:
    route = str(pattern.pattern)
    if isinstance(pattern.pattern, RegexPattern):
        # The id of a row, a catch-all path, and the end of an expression.
        route = re.sub(r"\(\?P<pk>.*\)(?=[/$])", SAMPLES["uuid"], route)
        return re.sub(r"\(\?P<.*\)", "x", route).strip("^$")
    return re.sub(r"<(?:(\w+):)?\w+>", lambda found: SAMPLES[found[1] or "str"], route)


EVERY = sorted(set(addresses(get_resolver().url_patterns)))


def directives(response: Any) -> dict[str, str]:
    stated = [directive.strip().partition(" ") for directive in response.headers[POLICY].split(";")]
    return {name: sources for name, _, sources in stated}


def stated(response: Any) -> set[str]:
    return {directive.strip() for directive in response.headers[POLICY].split(";")}


def test_the_resolver_was_walked() -> None:
    assert len(EVERY) > 150
    assert {
        "/admin/",
        "/invitations/x/",
        "/api/v1/calls/",
        f"/api/v1/keys/{SAMPLES['uuid']}/revoke/",
        "/healthz",
        "/admin/live/",
    } <= set(EVERY)


@pytest.mark.parametrize("who", ["superuser", "anonymous"])
def test_every_address_states_what_browsers_may_do_with_its_answer(as_: Any, who: str) -> None:
    client: Client = as_(who)
    client.raise_request_exception = False
    for path in EVERY:
        if path.endswith("/logout/"):
            continue
        response = client.get(path)
        assert stated(response) >= EVERYWHERE, path
        assert response.headers["X-Content-Type-Options"] == "nosniff", path
        assert response.headers["X-Frame-Options"] == "DENY", path
        assert response.headers["Referrer-Policy"] in {"same-origin", "strict-origin"}, path
        assert "camera=()" in response.headers["Permissions-Policy"], path
        # Not a directive that browsers know: each page would log a warning in their consoles.
        assert "bluetooth" not in response.headers["Permissions-Policy"], path
        is_page = response.headers.get("Content-Type", "text/html").startswith("text/html")
        assert stated(response) >= OF_PAGES if is_page else response.headers[POLICY] == INERT, path
        assert "unsafe-inline" not in directives(response).get("script-src", ""), path


def test_errors_state_it_too(as_: Any) -> None:
    for path, headers in (("/nothing/", {}), ("/admin/", {"Host": "elsewhere.example"})):
        assert stated(Client(headers=headers).get(path)) >= OF_PAGES


def test_only_pages_made_with_alpine_may_compile_code_in_the_browser(as_: Any) -> None:
    client = as_("superuser")
    assert "'unsafe-eval'" in directives(client.get("/admin/"))["script-src"]
    assert directives(client.get("/api/v1/docs/"))["script-src"] == "'self'"


def test_no_page_has_a_script_or_a_style_in_it(as_: Any, acme: Any, page: Any) -> None:
    client = as_("superuser")
    pages = ["/admin/", "/admin/playground/", "/admin/live/", "/admin/login/", "/api/v1/docs/"]
    pages += [page(model, "changelist") for model in ("tool", "apikey", "call", "resource")]
    pages += [page(model, "change", acme.row(model)) for model in ("tool", "apikey", "call", "resource", "tenant")]
    for path in pages:
        text = client.get(path, follow=True).content.decode()
        assert "<style" not in text, path
        assert re.findall(r"<script(?![^>]*(?:\bsrc=|application/json))[^>]*>", text) == [], path
        assert re.findall(r"<[^>]+\son[a-z]+\s*=", text) == [], path


@pytest.mark.parametrize("mime_type", ["text/html", "image/svg+xml", "application/xhtml+xml"])
def test_a_file_of_a_tenant_never_runs_as_a_page(as_: Any, acme: Any, mime_type: str) -> None:
    body = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    row = Resource.objects.create(
        tenant=acme.tenant, uri="docs://x.html", name="x", kind=ResourceKind.FILE, blob=body, mime_type=mime_type
    )
    response = as_("admin").get(reverse("admin:tools_app_resource_download", args=[row.pk]))
    assert response.status_code == 200
    assert (response.headers[POLICY], response.headers["X-Content-Type-Options"]) == (INERT, "nosniff")
    assert response.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize("disposition", ["inline", "attachment"])
@pytest.mark.parametrize("content_type", ["image/svg+xml", "text/xml", "TEXT/HTML", "text/html; charset=utf-8"])
def test_what_is_no_page_is_inert_whatever_it_says_that_it_is(content_type: str, disposition: str) -> None:
    def view(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"", content_type=content_type, headers={"Content-Disposition": disposition})

    response = response_headers(view)(RequestFactory().get("/"))
    is_page = content_type.lower().startswith("text/html") and disposition == "inline"
    assert response.headers.get(POLICY) == (None if is_page else INERT)


def test_the_page_of_a_link_tells_nobody_its_address(db: None) -> None:
    response = Client().get("/invitations/secret/")
    assert response.headers["Referrer-Policy"] == "strict-origin"


def test_the_colours_are_those_of_unfold() -> None:
    ours = dict(re.findall(r"--color-([\w-]+): ([^;]+);", (STATIC / "web" / "colors.css").read_text()))
    theirs = {
        f"{name}-{weight}": convert_color(value)
        for name, weights in CONFIG_DEFAULTS["COLORS"].items()
        for weight, value in weights.items()
    }
    assert ours == theirs


def test_there_is_an_icon_where_browsers_look_for_one(caplog: pytest.LogCaptureFixture, as_: Any) -> None:
    response = Client().get("/favicon.ico")
    assert response.status_code == 200
    assert b"".join(response.streaming_content)[:4] == b"\0\0\1\0"
    assert not caplog.records
    assert 'href="/static/tools_app/web/favicon.svg"' in as_("admin").get("/admin/").content.decode()
