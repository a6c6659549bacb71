"""The GET stream of a session (2025-11-25, transports, §Listening for Messages from the Server)."""

from typing import Any

import pytest

from tests.wire.client import Peer, RawClient
from tools_app.catalog import authoring
from tools_app.models import ApiKey, Tenant
from tools_app.tenants import keys

pytestmark = pytest.mark.servers


def test_a_stream_ends_with_its_session_and_has_no_messages_of_other_tenants(
    session: Peer, other_tenant: Tenant
) -> None:
    with session.listening() as stream:
        authoring.add_code_tools(other_tenant, ["echo"])
        session.delete()
        assert stream.read_to_end() == []


def test_a_stream_ends_soon_after_its_key_was_revoked(client: RawClient) -> None:
    with client.handshake().listening() as stream:
        keys.revoke(ApiKey.objects.get(digest=keys.digest_of(client.key)))
        assert stream.read_to_end() == []


def test_it_needs_a_client_that_takes_streams(client: RawClient) -> None:
    with client.handshake().listening({"Accept": "application/json"}) as stream:
        assert stream.response.status_code == 406


def test_an_idle_stream_is_kept_alive(client: RawClient, settings: Any) -> None:
    settings.MCPHUB_KEEPALIVE_INTERVAL = 0.05
    with client.handshake().listening() as stream:
        lines = stream.response.iter_lines()
        assert [line for line, _ in zip(lines, range(6), strict=False) if line] == [": keep-alive"] * 3


@pytest.mark.parametrize("accept", ["*/*", "text/*", "text/event-stream;q=0.1"])
def test_where_only_a_stream_can_answer_a_wildcard_is_enough(client: RawClient, accept: str) -> None:
    with client.handshake().listening({"Accept": accept}) as stream:
        assert stream.response.status_code == 200
