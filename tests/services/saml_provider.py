"""A SAML 2.0 identity provider, based on pysaml2: python saml_provider.py PORT DIRECTORY.

Anyone can sign in with any name and groups. Other fields of the login form make responses that a hub has to reject.
It fetches a hub's metadata from the URL in its request.
"""

import html
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from urllib.parse import parse_qs

from saml2 import BINDING_HTTP_POST, BINDING_HTTP_REDIRECT
from saml2.config import IdPConfig
from saml2.metadata import entity_descriptor
from saml2.saml import NAMEID_FORMAT_PERSISTENT, NameID
from saml2.server import Server
from saml2.xmldsig import DIGEST_SHA256, SIG_RSA_SHA256

FORM = """<!doctype html><form method="post" action="/login">
<input type="hidden" name="request" value="{}"><input name="login" value=""><input name="groups" value="">
<input name="minutes" value="15"><input name="session" value=""><input name="audience" value="">
<button>Log in</button></form>"""
ANSWER = """<!doctype html><form method="post" action="{}">
<input type="hidden" name="SAMLResponse" value="{}"><button>Continue</button></form>"""
# Another service provider than the hub.
OTHER = "https://wiki.acme.example/metadata"


def started(port: int, place: Path, hubs: list[str], minutes: int = 15) -> Server:
    """The provider with these metadata, and assertions that are valid for this many minutes."""
    url = f"http://localhost:{port}"
    config = IdPConfig()
    config.load(
        {
            "entityid": f"{url}/metadata",
            "xmlsec_binary": which("xmlsec1"),
            "key_file": str(place / "key.pem"),
            "cert_file": str(place / "certificate.pem"),
            "metadata": {"inline": hubs},
            "service": {
                "idp": {
                    "endpoints": {"single_sign_on_service": [(f"{url}/sso", BINDING_HTTP_REDIRECT)]},
                    "policy": {"default": {"lifetime": {"minutes": minutes}, "attribute_restrictions": None}},
                    "sign_assertion": True,
                    "signing_algorithm": SIG_RSA_SHA256,
                    "digest_algorithm": DIGEST_SHA256,
                }
            },
        }
    )
    return Server(config=config)


def fetched(url: str) -> str:
    """The metadata of a hub."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=10) as response:
        return response.read().decode()


class Pages(BaseHTTPRequestHandler):
    """The pages of the provider."""

    port = 0
    place = Path()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/metadata":
            self._respond(str(entity_descriptor(started(self.port, self.place, []).config)))
        else:
            self._respond(FORM.format(html.escape(parse_qs(query)["SAMLRequest"][0])))

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: value[0] for name, value in parse_qs(text).items()}
        # The issuer is in the request, which is not trusted before its metadata is known.
        unverified = started(self.port, self.place, []).parse_authn_request(form["request"], BINDING_HTTP_REDIRECT)
        entity = unverified.message.issuer.text
        known = fetched(entity)
        minutes = int(form["minutes"])
        provider = started(self.port, self.place, [known, known.replace(entity, OTHER)], minutes)
        request = provider.parse_authn_request(form["request"], BINDING_HTTP_REDIRECT)
        to = provider.response_args(request.message, [BINDING_HTTP_POST])
        audience = OTHER if form.get("audience") else entity
        ends = datetime.now(UTC) + timedelta(minutes=int(form["session"])) if form.get("session") else None
        response = provider.create_authn_response(
            {
                "eduPersonAffiliation": form["groups"].split(),
                "mail": f"{form['login']}@acme.example",
                "givenName": form["login"].capitalize(),
            },
            to["in_response_to"],
            to["destination"],
            audience,
            name_id=NameID(format=NAMEID_FORMAT_PERSISTENT, sp_name_qualifier=audience, text=f"id-{form['login']}"),
            authn={"class_ref": "urn:oasis:names:tc:SAML:2.0:ac:classes:Password", "authn_instant": int(time.time())},
            sign_assertion=True,
            session_not_on_or_after=ends.strftime("%Y-%m-%dT%H:%M:%SZ") if ends else None,
        )
        sent = provider.apply_binding(BINDING_HTTP_POST, str(response), to["destination"], response=True)
        assert to["destination"] in sent["data"]
        value = sent["data"].partition('name="SAMLResponse" value="')[2].partition('"')[0]
        self._respond(ANSWER.format(html.escape(to["destination"]), value))

    def _respond(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log no requests."""


def main() -> None:
    Pages.port, Pages.place = int(sys.argv[1]), Path(sys.argv[2])
    files = ["-keyout", str(Pages.place / "key.pem"), "-out", str(Pages.place / "certificate.pem")]
    subject = ["-subj", "/CN=idp.acme.example", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject], check=True, capture_output=True
    )
    ThreadingHTTPServer(("localhost", Pages.port), Pages).serve_forever()


if __name__ == "__main__":
    main()
