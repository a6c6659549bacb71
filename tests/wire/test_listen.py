"""`subscriptions/listen` (2026-07-28, subscriptions)."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db.models import F

from tests.wire.client import MODERN, RawClient, Stream, error_of
from tools_app.catalog import authoring
from tools_app.core.notifications.listener import POLL_SECONDS
from tools_app.models import ApiKey, Tenant
from tools_app.tenants import keys

pytestmark = pytest.mark.servers

META = {"io.modelcontextprotocol/subscriptionId": "sub-1"}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": META}}


def listening(client: RawClient, filters: object) -> AbstractContextManager[Stream]:
    return client.peer(MODERN).stream("subscriptions/listen", {"notifications": filters}, id="sub-1")


@pytest.mark.shows("base.notification-without-id", "meta.subscription-id", "subscriptions.acknowledged")
@pytest.mark.parametrize(
    ("filters", "agreed"),
    [
        ({"toolsListChanged": True}, {"toolsListChanged": True}),
        (
            {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True, "other": True},
            {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
        ),
        ({"resourceSubscriptions": ["docs://nothing"]}, {"resourceSubscriptions": []}),
        ({"toolsListChanged": False}, {}),
        ({}, {}),
    ],
)
def test_the_acknowledgement_comes_first_and_says_what_was_agreed(
    client: RawClient, filters: object, agreed: object
) -> None:
    with listening(client, filters) as stream:
        assert stream.response.status_code == 200
        assert stream.response.headers["content-type"] == "text/event-stream"
        assert stream.next() == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": META, "notifications": agreed},
        }


@pytest.mark.shows("meta.subscription-id", "tools.list-changed")
def test_each_change_of_the_catalog_is_notified_with_the_subscription_id(
    client: RawClient, offer: Callable[..., Any]
) -> None:
    (tool,) = offer("echo")
    with listening(client, {"toolsListChanged": True}) as stream:
        stream.next()
        for change in (
            lambda: authoring.set_enabled(tool, enabled=False),
            lambda: authoring.save_tool(tool),
            lambda: authoring.delete(tool),
        ):
            change()
            assert stream.next() == CHANGED


def test_changes_of_another_tenant_are_not_notified(
    client: RawClient, offer: Callable[..., Any], other_tenant: Tenant
) -> None:
    with listening(client, {"toolsListChanged": True}) as stream:
        stream.next()
        authoring.add_code_tools(other_tenant, ["echo", "count"])
        revoke(client)
        assert [message.get("method") for message in stream.read_to_end()] == ["notifications/cancelled", None]


def revoke(client: RawClient) -> None:
    keys.revoke(ApiKey.objects.get(digest=keys.digest_of(client.key)))


def test_a_stream_ends_soon_after_its_key_was_revoked(client: RawClient) -> None:
    with listening(client, {"toolsListChanged": True}) as stream:
        stream.next()
        revoke(client)
        notification, result = stream.read_to_end()
    assert (notification["method"], notification["params"]["requestId"]) == ("notifications/cancelled", "sub-1")
    assert result["result"]["resultType"] == "complete"


@pytest.mark.parametrize("filters", [None, [], "tools", {"toolsListChanged": 1}])
def test_an_invalid_filter_is_rejected(client: RawClient, filters: object) -> None:
    response = client.modern("subscriptions/listen", {"notifications": filters})
    assert response.status_code == 400
    assert error_of(response)["code"] == -32602


def test_it_needs_a_client_that_takes_streams(client: RawClient) -> None:
    response = client.modern("subscriptions/listen", {"notifications": {}}, headers={"Accept": "application/json"})
    assert response.status_code == 406


def test_a_session_has_no_such_method(client: RawClient) -> None:
    assert error_of(client.handshake().request("subscriptions/listen", {"notifications": {}}))["code"] == -32601


def test_a_change_is_noticed_by_a_poll_without_a_notification(
    client: RawClient, offer: Callable[..., Any], tenant: Tenant
) -> None:
    """The rows are changed without signals, so that no notification is sent."""
    (tool,) = offer("echo")
    with listening(client, {"toolsListChanged": True}) as stream:
        stream.next()
        type(tool).objects.filter(pk=tool.pk).update(enabled=False)
        Tenant.objects.filter(pk=tenant.pk).update(catalog_version=F("catalog_version") + 1)
        assert POLL_SECONDS < 1
        assert stream.next() == CHANGED
