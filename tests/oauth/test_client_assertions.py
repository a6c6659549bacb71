"""Clients that sign an assertion in place of a secret, as ChatGPT does (RFC 7523, section 3)."""

import json
import time
from typing import Any
from uuid import uuid4

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from tests.oauth.person import Application, Person
from tools_app.access.oauth import clients
from tools_app.issuers.signatures import REGISTRY
from tools_app.models import OAuthClient
from tools_app.oauth import client_assertions, client_documents
from tools_app.oauth.client_assertions import TYPE

CLIENT_ID = "https://chatgpt.example/oauth/client.json"
REDIRECT = "https://chatgpt.example/connector/oauth/callback"
RSA = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "two"})
EC = ECKey.generate_key("P-256", {"kid": "three"})
ED = OKPKey.generate_key("Ed25519", {"kid": "four"})


def public(*keys: Any) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for key in keys]}


@pytest.fixture
def signing(application: Application) -> Application:
    """A client whose document has its keys."""
    document = {
        "client_id": CLIENT_ID,
        "client_name": "ChatGPT",
        "redirect_uris": [REDIRECT],
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": public(RSA, EC, ED),
    }
    clients.from_document(CLIENT_ID, document)
    application.client_id, application.redirect_uri = CLIENT_ID, REDIRECT
    return application


def assertion(application: Application, key: Any = RSA, algorithm: str = "RS256", **changes: Any) -> dict[str, str]:
    claims = {
        "iss": CLIENT_ID,
        "sub": CLIENT_ID,
        "aud": f"{application.base}/oauth/token",
        "exp": int(time.time()) + 300,
        "jti": str(uuid4()),
        **changes,
    }
    said = {name: value for name, value in claims.items() if value is not None}
    header = {"alg": algorithm, "kid": key.kid} if key.kid else {"alg": algorithm}
    registry = REGISTRY if algorithm == "EdDSA" else None
    text = jwt.encode(header, said, key, algorithms=None if registry else [algorithm], registry=registry)
    return {"client_assertion_type": TYPE, "client_assertion": text}


@pytest.mark.parametrize(
    ("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS256"), (EC, "ES256"), (ED, "EdDSA"), (ED, "Ed25519")]
)
@pytest.mark.parametrize("path", ["", "/oauth/token"])
def test_a_client_that_signs_gets_and_renews_its_tokens(
    ann: Person, signing: Application, key: Any, algorithm: str, path: str
) -> None:
    location = ann.connect(signing.url(), ["echo"])
    audience = f"{signing.base}{path}"
    first = signing.exchange(location, **assertion(signing, key, algorithm, aud=audience))
    assert first.status_code == 200, first.text
    again = signing.refresh(first.json()["refresh_token"], **assertion(signing, key, algorithm, aud=[audience]))
    assert again.status_code == 200, again.text
    ended = {"client_id": CLIENT_ID, "token": again.json()["refresh_token"], **assertion(signing, key, algorithm)}
    assert signing.http.post("/oauth/revoke", data=ended).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://chatgpt.example/other"},
        {"sub": "https://chatgpt.example/other"},
        {"aud": "https://elsewhere.example"},
        {"aud": None},
        {"exp": None},
        {"exp": int(time.time()) - 3600},
        {"exp": int(time.time()) + 86_400},
        {"nbf": int(time.time()) + 3600},
        {"jti": None},
        {"jti": "x" * 300},
        {"key": OTHER},
    ],
)
def test_an_assertion_that_is_not_of_this_client_now_and_here_opens_nothing(
    ann: Person, signing: Application, changes: dict[str, Any]
) -> None:
    location = ann.connect(signing.url(), ["echo"])
    answer = signing.exchange(location, **assertion(signing, **changes))
    assert answer.status_code in (400, 401)
    assert answer.json()["error"] == "invalid_client"
    assert answer.json()["error_description"]
    # The code is still good for the client itself.
    assert signing.exchange(location, **assertion(signing)).status_code == 200


def test_an_assertion_is_good_once(ann: Person, signing: Application) -> None:
    location = ann.connect(signing.url(), ["echo"])
    signed = assertion(signing)
    assert signing.exchange(location, **signed).status_code == 200
    answer = signing.exchange(location, **signed)
    assert answer.json()["error_description"] == "The assertion was used before."


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_what_is_not_signed_with_the_private_key_is_refused(ann: Person, signing: Application, algorithm: str) -> None:
    """With HS256, anybody could use the public key as the secret."""
    location = ann.connect(signing.url(), ["echo"])
    key = OctKey.import_key(json.dumps(public(RSA)))
    header, claims, signature = assertion(signing, key, "HS256")["client_assertion"].split(".")
    if algorithm == "none":
        header, signature = "eyJhbGciOiJub25lIn0", ""
    fields = {"client_assertion_type": TYPE, "client_assertion": f"{header}.{claims}.{signature}"}
    assert signing.exchange(location, **fields).status_code == 401


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "e30.e30.e30", "." * 100])
def test_what_is_no_assertion_is_refused(ann: Person, signing: Application, text: str) -> None:
    location = ann.connect(signing.url(), ["echo"])
    answer = signing.exchange(location, client_assertion_type=TYPE, client_assertion=text)
    assert answer.json()["error"] == "invalid_client"


def test_new_keys_are_read_from_their_url_at_most_once_a_minute(
    ann: Person, signing: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    OAuthClient.objects.update(jwks_uri="https://chatgpt.example/jwks.json", jwks=public(RSA))
    asked: list[str] = []

    async def fetch(url: str) -> client_documents.Reply:
        asked.append(url)
        return client_documents.Reply(200, {}, json.dumps(public(RSA, OTHER)).encode())

    monkeypatch.setattr(client_documents, "fetch", fetch)
    location = ann.connect(signing.url(), ["echo"])
    unknown = RSAKey.generate_key(2048, {"kid": "four"})
    assert signing.exchange(location, **assertion(signing, OTHER)).status_code == 200
    for _ in range(3):
        assert signing.exchange(location, **assertion(signing, unknown)).status_code == 401
    assert asked == ["https://chatgpt.example/jwks.json"]
    monkeypatch.setattr(client_assertions, "KEYS_FRESH", client_assertions.KEYS_FRESH * 0)
    signing.exchange(location, **assertion(signing, unknown))
    assert len(asked) == 2
