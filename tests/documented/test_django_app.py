"""The example of docs/django.md, unchanged: installed, enabled, and called."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import AppConfig, apps
from django.contrib.auth.models import User
from django.db import connection

from tests.documented.blocks import blocks
from tests.wire.client import MODERN, Peer, RawClient, message_of
from tools_app.models import Membership, Role, Tenant
from tools_app.server.embedded import EmbeddedHub
from tools_app.tenants import keys

TOOLS = ["get_shop_order", "list_shop_order", "order_create", "order_list", "order_retrieve"]


@pytest.fixture
def shop(hub: EmbeddedHub, registries: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the app of the page, and create its table."""
    for block in blocks("python", "docs/django.md"):
        path = tmp_path / block.text.partition("\n")[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text)
    (tmp_path / "shop" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    config = AppConfig.create("shop")
    config.apps, config.default_auto_field = apps, "django.db.models.BigAutoField"
    # Checked while the models are imported.
    config.models = apps.all_models["shop"]
    apps.app_configs["shop"] = config
    apps.clear_cache()
    try:
        config.import_models()
        with connection.schema_editor() as editor:
            editor.create_model(config.get_model("Order"))
        importlib.import_module("shop.mcp_tools")
        yield
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(config.get_model("Order"))
        del apps.app_configs["shop"], apps.all_models["shop"]
        apps.clear_cache()
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]


def rows(result: dict[str, Any]) -> Any:
    assert not result["isError"], result
    return json.loads(result["content"][0]["text"])


def test_the_app_of_the_page_offers_its_tools_and_everybody_gets_their_own(
    shop: None, hub: EmbeddedHub, tenant: Tenant, offer: Callable[..., object]
) -> None:
    offer(*TOOLS)
    clients: list[RawClient] = []

    def client_of(name: str, **fields: Any) -> Peer:
        person = User.objects.create_user(name, **fields)
        Membership.objects.create(user=person, tenant=tenant, role=Role.OPERATOR)
        _, key = keys.issue(tenant, name, created_by=person, acts_for_creator=True)
        clients.append(RawClient(hub.url, key))
        return clients[-1].peer(MODERN)

    ann, ben, boss = client_of("ann"), client_of("ben"), client_of("boss", is_staff=True)
    assert [tool["name"] for tool in message_of(ann.request("tools/list"))["result"]["tools"]] == TOOLS
    created = rows(ann.result("order_create", {"product": "tea", "amount": 2}))
    assert created == {"id": created["id"], "product": "tea", "amount": 2}
    assert rows(ann.result("order_retrieve", {"id": created["id"]})) == created
    assert rows(ann.result("order_list", {"search": "te"}))
    for peer, seen in ((ann, 1), (ben, 0), (boss, 1)):
        assert len(rows(peer.result("list_shop_order", {"product__contains": "EA"}))["rows"]) == seen
    assert ben.result("order_retrieve", {"id": created["id"]})["isError"]
    assert "access_token" not in rows(boss.result("get_shop_order", {"id": created["id"]}))
    for client in clients:
        client.http.close()
