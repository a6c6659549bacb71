"""Calls per minute: of a tool, of a key, of a tenant."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import forget_everything
from tests.wire.client import Peer, RawClient, error_of
from tools_app.models import ApiKey, Call, Tenant, Tool

LIMITED = {"tool": Tool, "key": ApiKey, "tenant": Tenant}


def limit(scope: str, calls_per_minute: int) -> None:
    LIMITED[scope].objects.update(calls_per_minute=calls_per_minute)
    Tenant.objects.update(catalog_version=1000)
    forget_everything()


@pytest.mark.shows("tools.rate-limit")
@pytest.mark.parametrize("scope", LIMITED)
def test_a_call_over_the_limit_is_told_which_and_when_to_retry(
    client: RawClient, offer: Callable[..., object], scope: str
) -> None:
    offer("echo")
    peer = client.handshake()
    limit(scope, 2)
    assert [peer.call("echo", {"message": "x"}).status_code for _ in range(2)] == [200, 200]
    response = peer.call("echo", {"message": "x"}, id=3)
    assert response.status_code == 429
    assert response.json()["id"] == 3
    error = error_of(response)
    retry_after = int(response.headers["retry-after"])
    assert 0 < retry_after <= 60
    assert error["code"] == -32004
    assert error["message"] == f"Over the limit of 2 calls per minute for this {scope}."
    assert error["data"] == {
        "limit": scope,
        "callsPerMinute": 2,
        "windowSeconds": 60,
        "retryAfterSeconds": retry_after,
    }


def test_a_limit_of_none_lets_no_call_through_but_all_else(peer: Peer, offer: Callable[..., object]) -> None:
    offer("echo")
    limit("key", 0)
    assert peer.call("echo", {"message": "x"}).status_code == 429
    assert peer.request("tools/list").status_code == 200


def test_a_call_over_the_limit_is_recorded_as_denied(
    client: RawClient, offer: Callable[..., object], tenant: Tenant, eventually: Callable[..., Any]
) -> None:
    offer("echo")
    limit("tenant", 0)
    client.handshake().call("echo", {"message": "x"})
    call = eventually(Call.objects.first)
    assert (call.outcome, call.http_status, call.rpc_error) == ("denied", 429, -32004)
    assert (call.tenant, call.tool_name, call.is_error) == (tenant, "echo", None)
