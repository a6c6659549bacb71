"""What clients send to the authorization server has the bounds of `docs/security.md`."""

from typing import Any

import orjson
import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from joserfc.jwk import ECKey

from tools_app.identity.authorization import endpoints, server
from tools_app.identity.oauth import devices, key_sets, redirects

pytestmark = [pytest.mark.slow, pytest.mark.django_db, pytest.mark.usefixtures("no_tries_yet")]


def registered(**more: Any) -> str:
    return str(register(1, **more).json()["client_id"])


def register(uris: int, **more: Any) -> Any:
    metadata = {
        "redirect_uris": [f"http://localhost/{number}" for number in range(uris)],
        "token_endpoint_auth_method": "none",
        **more,
    }
    return Client().post("/oauth/register", metadata, "application/json")


def test_a_long_parameter_is_refused() -> None:
    for length, error in ((server.MAX_PARAMETER, "invalid_grant"), (server.MAX_PARAMETER + 1, "too long")):
        fields = {"grant_type": "refresh_token", "refresh_token": "x" * length, "client_id": registered()}
        response = Client().post("/oauth/token", fields)
        assert response.status_code == 400
        assert error in str(response.json())


def test_a_registration_has_bounds() -> None:
    assert register(redirects.MAX_URIS).status_code == 201
    assert register(redirects.MAX_URIS + 1).status_code == 400
    assert register(1, x="x" * endpoints.MAX_REGISTRATION_BYTES).status_code == 400


def test_an_address_sends_so_many_token_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MAX_TOKEN_REQUESTS", 2)
    assert [Client().post("/oauth/token").status_code for _ in range(3)] == [400, 400, 429]


def test_an_address_sends_so_many_device_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MAX_DEVICE_REQUESTS", 2)
    fields = {"client_id": registered(grant_types=[devices.GRANT])}
    statuses = [Client().post("/oauth/device_authorization", fields).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_the_keys_of_a_client_have_bounds() -> None:
    key = ECKey.generate_key("P-256").as_dict(private=False)
    key_sets.checked({"keys": [key] * key_sets.MAX_KEYS})
    with pytest.raises(ValidationError):
        key_sets.checked({"keys": [key] * (key_sets.MAX_KEYS + 1)})
    room = key_sets.MAX_KEYS_BYTES - len(orjson.dumps([{**key, "note": ""}]))
    key_sets.checked({**key, "note": "x" * room})
    with pytest.raises(ValidationError, match="more than 65536 bytes"):
        key_sets.checked({**key, "note": "x" * (room + 1)})
