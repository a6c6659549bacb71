"""Clients that sign an assertion in place of a secret, as ChatGPT does (RFC 7523, section 3)."""

import json
import time
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from tests.identity.oauth.person import Application, Person
from tools_app.core.http.documents import DocumentError
from tools_app.identity.authorization import server
from tools_app.identity.authorization.server import ASSERTION_TYPE
from tools_app.identity.oauth import clients
from tools_app.identity.oauth.key_sets import REGISTRY
from tools_app.models import OAuthClient
from tools_app.tenants.limits import limits

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
    """A client whose metadata document contains its keys."""
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
    payload = {name: value for name, value in claims.items() if value is not None}
    header = {"alg": algorithm, "kid": key.kid} if key.kid else {"alg": algorithm}
    registry = REGISTRY if algorithm == "EdDSA" else None
    text = jwt.encode(header, payload, key, algorithms=None if registry else [algorithm], registry=registry)
    return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": text}


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
    response = signing.exchange(location, **assertion(signing, **changes))
    assert response.status_code in (400, 401)
    assert response.json()["error"] == "invalid_client"
    assert response.json()["error_description"]
    # The code is still valid for the client itself.
    assert signing.exchange(location, **assertion(signing)).status_code == 200


def test_an_assertion_is_good_once(ann: Person, signing: Application) -> None:
    location = ann.connect(signing.url(), ["echo"])
    signed = assertion(signing)
    assert signing.exchange(location, **signed).status_code == 200
    # What is counted in memory or in Redis does not decide.
    limits.forget_all()
    response = signing.exchange(location, **signed)
    assert response.json()["error_description"] == "The assertion was used before."


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_what_is_not_signed_with_the_private_key_is_refused(ann: Person, signing: Application, algorithm: str) -> None:
    """With HS256, anyone could use the public key as the secret."""
    location = ann.connect(signing.url(), ["echo"])
    key = OctKey.import_key(json.dumps(public(RSA)))
    header, claims, signature = assertion(signing, key, "HS256")["client_assertion"].split(".")
    if algorithm == "none":
        header, signature = "eyJhbGciOiJub25lIn0", ""
    fields = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": f"{header}.{claims}.{signature}"}
    assert signing.exchange(location, **fields).status_code == 401


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "e30.e30.e30", "." * 100])
def test_what_is_no_assertion_is_refused(ann: Person, signing: Application, text: str) -> None:
    location = ann.connect(signing.url(), ["echo"])
    response = signing.exchange(location, client_assertion_type=ASSERTION_TYPE, client_assertion=text)
    assert response.json()["error"] == "invalid_client"


def test_new_keys_are_read_from_their_url_at_most_once_a_minute(
    ann: Person, signing: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    OAuthClient.objects.update(jwks_uri="https://chatgpt.example/jwks.json", jwks=public(RSA))
    requested: list[str] = []

    async def fetch(url: str) -> clients.Reply:
        requested.append(url)
        return clients.Reply(200, {}, json.dumps(public(RSA, OTHER)).encode())

    monkeypatch.setattr(clients, "fetch", fetch)
    location = ann.connect(signing.url(), ["echo"])
    unknown = RSAKey.generate_key(2048, {"kid": "four"})
    assert signing.exchange(location, **assertion(signing, OTHER)).status_code == 200
    for _ in range(3):
        assert signing.exchange(location, **assertion(signing, unknown)).status_code == 401
    assert requested == ["https://chatgpt.example/jwks.json"]
    monkeypatch.setattr(server, "KEYS_REFRESH_INTERVAL", server.KEYS_REFRESH_INTERVAL * 0)
    # Another client with the same URL does not cause another fetch either.
    signing.exchange(location, **assertion(signing, unknown))
    assert len(requested) == 1


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any] | None]:
    """The responses of the key URLs, in order; None: the server is down. There is no limit on fetches."""
    responses: list[dict[str, Any] | None] = []

    async def fetch(_url: str) -> clients.Reply:
        response = responses.pop(0)
        if response is None:
            raise DocumentError("No answer within 5 seconds.")
        return clients.Reply(200, {}, json.dumps(response).encode())

    monkeypatch.setattr(clients, "fetch", fetch)
    monkeypatch.setattr(clients, "SECONDS_BETWEEN_FETCHES", 0.001)
    return responses


def test_a_key_that_a_client_withdrew_ends_within_an_hour(
    ann: Person, signing: Application, published: list[dict[str, Any] | None]
) -> None:
    read = timezone.now() - server.MAX_KEYS_AGE
    OAuthClient.objects.update(jwks_uri="https://chatgpt.example/jwks", jwks=public(RSA, OTHER), keys_fetched_at=read)
    location = ann.connect(signing.url(), ["echo"])
    published += [None, public(OTHER)]
    # The server is down: the known keys remain valid until the next fetch.
    assert signing.exchange(location, **assertion(signing)).status_code == 200
    OAuthClient.objects.update(keys_fetched_at=read)
    location = ann.connect(signing.url(), ["echo"])
    assert signing.exchange(location, **assertion(signing)).status_code == 401
    assert signing.exchange(location, **assertion(signing, OTHER)).status_code == 200
    assert published == []


def test_keys_from_another_url_than_the_document_names_now_count_no_more(db: None) -> None:
    document = {"client_id": CLIENT_ID, "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "private_key_jwt"}
    clients.from_document(CLIENT_ID, {**document, "jwks_uri": "https://chatgpt.example/old"})
    OAuthClient.objects.update(jwks=public(RSA), keys_fetched_at=timezone.now())
    assert clients.from_document(CLIENT_ID, {**document, "jwks_uri": "https://chatgpt.example/old"}).jwks
    row = clients.from_document(CLIENT_ID, {**document, "jwks_uri": "https://chatgpt.example/new"})
    assert (row.jwks, row.keys_fetched_at) == (None, None)


# --- Clients that register -----------------------------------------------------------------------------------------

SIGNS = {"token_endpoint_auth_method": "private_key_jwt"}


def registered(application: Application, **fields: Any) -> dict[str, Any]:
    response = application.register(**SIGNS, **fields)
    assert response.status_code == 201, response.text
    registration: dict[str, Any] = response.json()
    return registration


def own_assertion(application: Application, key: Any = RSA, **changes: Any) -> dict[str, str]:
    return assertion(application, key, **{"iss": application.client_id, "sub": application.client_id, **changes})


def test_what_the_metadata_of_the_server_promises_can_be_registered(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = application.http.get("/.well-known/oauth-authorization-server").json()
    for method in promised["token_endpoint_auth_methods_supported"]:
        response = application.register(token_endpoint_auth_method=method, jwks=public(RSA))
        assert response.status_code == 201, response.text
        assert response.json()["token_endpoint_auth_method"] == method
        assert bool(application.secret) == method.startswith("client_secret")


def test_a_client_registers_its_keys_and_signs(ann: Person, application: Application) -> None:
    metadata = registered(application, jwks=public(RSA))
    assert (metadata["jwks"], "client_secret" in metadata, "jwks_uri" in metadata) == (public(RSA), False, False)
    location = ann.connect(application.url(), ["echo"])
    # Neither its client ID alone nor somebody else's key is enough.
    assert application.exchange(location).json()["error"] == "invalid_client"
    assert application.exchange(location, **own_assertion(application, OTHER)).json()["error"] == "invalid_client"
    issued = application.exchange(location, **own_assertion(application))
    assert issued.status_code == 200, issued.text
    token = issued.json()["refresh_token"]
    assert application.refresh(token).json()["error"] == "invalid_client"
    assert application.refresh(token, **own_assertion(application)).status_code == 200


def test_a_client_registers_the_url_of_its_keys(
    ann: Person, application: Application, published: list[dict[str, Any] | None]
) -> None:
    metadata = registered(application, jwks_uri="https://app.example/jwks")
    assert (metadata["jwks_uri"], "jwks" in metadata) == ("https://app.example/jwks", False)
    # Keys of unknown types are ignored.
    published.append({"keys": [{"kty": "AKP", "alg": "ML-DSA-44", "pub": "x"}, {"kty": "EC", "crv": "P-9"}, 7]})
    published[0]["keys"] += public(RSA)["keys"]  # type: ignore[index] # not None
    location = ann.connect(application.url(), ["echo"])
    assert application.exchange(location, **own_assertion(application)).status_code == 200


def test_registrations_of_one_application_share_what_was_read(
    ann: Person, application: Application, published: list[dict[str, Any] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SECONDS_BETWEEN_FETCHES", 60.0)
    published.append(public(RSA))
    for _ in range(2):
        registered(application, jwks_uri="https://app.example/jwks")
        location = ann.connect(application.url(), ["echo"])
        assert application.exchange(location, **own_assertion(application)).status_code == 200
    assert published == []


@pytest.mark.parametrize("url", ["https://127.0.0.1/jwks", "https://169.254.169.254/jwks", "https://localhost/jwks"])
def test_keys_are_read_from_public_addresses_only(ann: Person, application: Application, url: str) -> None:
    registered(application, jwks_uri=url)
    response = application.exchange(ann.connect(application.url(), ["echo"]), **own_assertion(application))
    assert (response.status_code, response.json()["error"]) == (400, "invalid_client")
    description = response.json()["error_description"]
    assert "private or reserved" in description
    assert "no setting allows others" in description
    assert "Allowed networks" not in description


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "jwks_uri"),
        ({"jwks_uri": "http://app.example/jwks"}, "jwks_uri"),
        ({"jwks_uri": "https://app.example/\x00"}, "jwks_uri"),
        ({"jwks_uri": "https://app.example/" + "x" * 2000}, "jwks_uri"),
        ({"jwks_uri": ["https://app.example/jwks"]}, "jwks_uri"),
        ({"jwks": "keys"}, "jwks"),
        ({"jwks": {"keys": []}}, "1 to 10 keys"),
        ({"jwks": public(*[EC] * 11)}, "1 to 10 keys"),
        ({"jwks": {"keys": [{**public(RSA)["keys"][0], "kid": "\x00"}]}}, "NUL"),
        ({"jwks": {"keys": [{"kty": "RSA"}]}}, "cannot be read"),
        ({"jwks": {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}}, "kty"),
        ({"jwks": {"keys": [RSA.as_dict(private=True)]}}, "private key"),
        ({"jwks": public(RSA), "jwks_uri": "https://app.example/jwks"}, "either"),
    ],
)
def test_keys_that_no_client_can_sign_with_are_refused(
    application: Application, metadata: dict[str, Any], message: str
) -> None:
    response = application.register(**SIGNS, **metadata)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_client_metadata")
    assert message in response.json()["error_description"]
    assert not OAuthClient.objects.exists()
