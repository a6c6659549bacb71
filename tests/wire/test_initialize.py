"""`initialize` (2025-11-25, lifecycle, §Initialization)."""

import re

import pytest

from tests.wire.client import EACH_HANDSHAKE, SESSION, RawClient, error_of, rpc
from tools_app.models import Session, Tenant


@pytest.mark.shows("lifecycle.initialize-answer", "lifecycle.same-version", "tools.capability")
@pytest.mark.parametrize("version", EACH_HANDSHAKE)
def test_the_requested_revision_is_negotiated(client: RawClient, version: str) -> None:
    response = client.initialize(version)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    result = response.json()["result"]
    assert result["protocolVersion"] == version
    expected: dict[str, object] = {
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
        "logging": {},
    }
    if version >= "2025-03-26":
        expected["completions"] = {}
    if version == "2025-11-25":
        expected["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert result["capabilities"] == expected
    assert result["serverInfo"]["name"] == "mcphub"
    assert ("title" in result["serverInfo"]) is (version >= "2025-06-18")
    assert result.keys() == {"protocolVersion", "capabilities", "serverInfo"}


@pytest.mark.shows("lifecycle.latest-version", "lifecycle.other-version")
@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "", "latest"])
def test_an_unknown_revision_is_answered_with_the_latest_of_the_era(client: RawClient, version: str) -> None:
    assert client.initialize(version).json()["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.shows("streamable-http.session-id-ascii", "streamable-http.session-id-secure")
def test_the_session_id_is_long_visible_ascii_and_new_each_time(client: RawClient) -> None:
    first, second = (client.initialize().headers[SESSION] for _ in range(2))
    assert first != second
    assert re.fullmatch(r"[\x21-\x7e]{43}", first)


def test_the_session_is_a_row_that_holds_no_wire_id(client: RawClient, tenant: Tenant) -> None:
    wire_id = client.initialize("2025-06-18").headers[SESSION]
    row = Session.objects.get()
    assert (row.tenant, row.protocol_version, row.remote_address) == (tenant, "2025-06-18", "127.0.0.1")
    assert (row.client_name, row.client_version) == ("raw", "7")
    assert wire_id not in str(vars(row))


@pytest.mark.shows("base.notification-unanswered", "streamable-http.accepted")
def test_the_initialized_notification_is_accepted_without_a_body(client: RawClient) -> None:
    wire_id = client.initialize().headers[SESSION]
    response = client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, {SESSION: wire_id})
    assert response.status_code == 202
    assert response.content == b""
    assert "content-type" not in response.headers


@pytest.mark.shows("lifecycle.failures")
@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({}, "protocolVersion"),
        ({"protocolVersion": 20251125}, "protocolVersion"),
        ({"protocolVersion": "2025-11-25", "clientInfo": "me"}, "clientInfo"),
        ({"protocolVersion": "2025-11-25", "capabilities": []}, "capabilities"),
    ],
)
def test_bad_parameters_are_named_and_open_no_session(client: RawClient, params: dict[str, object], name: str) -> None:
    response = client.post(rpc("initialize", params))
    assert response.status_code == 400
    assert error_of(response)["code"] == -32602
    assert name in error_of(response)["message"]
    assert SESSION not in response.headers
    assert not Session.objects.exists()


def test_client_information_that_no_column_could_hold_is_made_to_fit(client: RawClient) -> None:
    info = {"name": "n" * 5000, "version": "v\x00" * 500}
    assert client.initialize(clientInfo=info, capabilities={"x\x00": ["\x00"]}).status_code == 200
    row = Session.objects.get()
    assert len(row.client_name) == 200
    assert row.client_version == "v\N{REPLACEMENT CHARACTER}" * 50
    assert row.client_capabilities == {"x\N{REPLACEMENT CHARACTER}": ["\N{REPLACEMENT CHARACTER}"]}
