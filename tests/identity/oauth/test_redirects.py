"""Redirect URIs that a client may register, and URLs that cannot be read."""

from contextlib import suppress
from itertools import product

import pytest

from tools_app.core.urls import is_loopback_host, split_url
from tools_app.identity.oauth import clients, policies, redirects, resources
from tools_app.models import ClientSource, OAuthClient

REFUSED = """
    javascript JavaScript vbscript livescript data blob filesystem file about chrome chrome-extension moz-extension
    view-source resource jar ws wss ftp mailto ms-msdt search-ms edge devtools intent tel smb shell
"""
PIECES = ("", "[", "]", "::1", "127.1", "a", ":", ":9", "@", "%", "/", "?", "#", "\\", "\u2100")


def test_a_scheme_that_a_browser_or_system_opens_itself_is_refused_and_an_applications_own_is_not() -> None:
    for scheme in REFUSED.split():
        for uri in (f"{scheme}://evil.example/x", f"{scheme}:x", f"{scheme}:https://evil.example"):
            assert redirects.problem_of(uri), uri
    for scheme in ("cursor", "vscode", "vscode-insiders", "com.example.app", "claude"):
        assert not redirects.problem_of(f"{scheme}://callback")


@pytest.mark.parametrize("start", ["", "https:", "https://", "https://["])
def test_a_url_of_a_stranger_that_cannot_be_read_raises_nothing_but_its_refusal(start: str) -> None:
    for pieces in product(PIECES, repeat=3):
        url = start + "".join(pieces)
        split_url(url)
        is_loopback_host(url)
        redirects.destination_of(url)
        redirects.source_of(url)
        policies.host_of(OAuthClient(source=ClientSource.DOCUMENT, client_id=url), url)
        if not redirects.problem_of(url):
            assert redirects.matches(url, [url])
        with suppress(clients.InvalidMetadata):
            clients.check_document_url(url)
        with suppress(resources.UnknownResource):
            resources.parse(url, "https://hub.example")
