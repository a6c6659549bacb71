"""Every configurable field takes effect in every process within a second, with and without notifications."""

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from django.apps import apps
from django.db import models

from tests.web_services import Service, serve  # noqa: F401 - a fixture
from tests.wire.client import RawClient
from tests.wire.effects import EFFECTS, Effect, World, build, service_answer
from tools_app.calls import limits
from tools_app.catalog.versioned import Versioned
from tools_app.core import refresh_ahead_cache
from tools_app.core.notifications import publish
from tools_app.models import Tool
from tools_app.server.embedded import EmbeddedHub
from tools_app.tenants.models import Tenant
from tools_app.toolkit import prompt

# It changes every field of everything that people set up.
pytestmark = pytest.mark.slow

FIELDS = [
    pytest.param(model, name, id=f"{model.__name__}.{name}")
    for model, fields in EFFECTS.items()
    for name, effect in fields.items()
    if isinstance(effect, Effect)
]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refresh cached rows after 20 ms instead of 0.9 s, and bound the waits for concurrency limits."""
    monkeypatch.setattr(refresh_ahead_cache, "RENEW_AFTER", 0.01)
    monkeypatch.setattr(refresh_ahead_cache, "TOO_OLD_AFTER", 0.02)
    monkeypatch.setattr(limits, "CONCURRENCY_WAIT_SECONDS", 0.02)


@pytest.fixture
def silently(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Send no more notifications of changed catalogs: each process must poll."""
    ring_bell = publish.notify

    def all_but_catalogs(*topics: str) -> None:
        ring_bell(*(topic for topic in topics if not topic.startswith("catalog:")))

    return lambda: monkeypatch.setattr(publish, "notify", all_but_catalogs)


@pytest.fixture
def world(
    hub: EmbeddedHub,
    serve: Callable[..., Service],  # noqa: F811
    registries: None,
    settings: Any,
) -> Iterator[World]:
    @prompt(name="registered", title="Registered")
    def registered() -> str:
        return "registered"

    slow = Event()
    client = RawClient(hub.url, None)
    yield build(hub.url, serve(service_answer(slow)), client)
    slow.set()
    client.http.close()


def change(row: models.Model, fields: dict[str, Any]) -> None:
    type(row)._default_manager.filter(pk=row.pk).update(**fields)


def values(world: World, fields: Any) -> dict[str, Any]:
    return {name: value(world) if callable(value) else value for name, value in fields.items()}


@pytest.mark.parametrize("model", EFFECTS, ids=lambda model: model.__name__)
def test_every_field_has_an_effect_or_a_reason(model: type[models.Model]) -> None:
    assert set(EFFECTS[model]) == {field.name for field in model._meta.concrete_fields}


def test_every_field_that_a_catalog_is_compiled_from_has_an_effect() -> None:
    assert {model for model in apps.get_models() if issubclass(model, Versioned)} <= set(EFFECTS)


@pytest.mark.parametrize(("model", "name"), FIELDS)
def test_a_field_takes_effect_when_it_is_saved_and_when_it_is_updated_without_a_notification(
    world: World,
    quickly: None,
    silently: Callable[[], None],
    eventually: Callable[..., Any],
    model: type[models.Model],
    name: str,
) -> None:
    effect = EFFECTS[model][name]
    assert isinstance(effect, Effect)
    for other, fields in effect.given.items():
        change(world.row(other), values(world, fields))
    row = world.row(model)
    row.refresh_from_db()
    before = getattr(row, name)
    eventually(lambda: effect.look(world) != effect.then)
    setattr(row, name, effect.value(world))
    row.save()
    eventually(lambda: effect.look(world) == effect.then)
    if effect.final:
        return
    silently()
    change(row, {name: before})
    eventually(lambda: effect.look(world) != effect.then)


def test_networks_that_are_allowed_no_more_are_out_of_reach_within_a_second(
    world: World, silently: Callable[[], None], eventually: Callable[..., Any]
) -> None:
    """The cache of tenants is never older than a second: see `tests/core/test_refresh_ahead_cache.py`."""
    assert refresh_ahead_cache.TOO_OLD_AFTER < 1
    assert world.called().startswith("/first")
    silently()
    change(world.tenant, {"allowed_networks": []})
    eventually(lambda: world.called() == "failed")


def test_a_worker_knows_the_allowed_networks_at_once(world: World, silently: Callable[[], None]) -> None:
    change(world.tool, {"background": True})
    # Its first call has the worker compile what the tenant offers.
    assert world.recorded("background")
    silently()
    change(world.tenant, {"allowed_networks": []})
    assert world.called() == "failed"


def test_an_invalid_network_disables_the_tools_of_one_tenant_only(
    world: World, quickly: None, eventually: Callable[..., Any]
) -> None:
    Tool.objects.create(tenant=world.other, name="theirs", kind=world.tool.kind, config=world.tool.config)
    change(world.tenant, {"allowed_networks": ["nonsense"]})
    eventually(lambda: world.listed("tools") == [])
    Tenant.objects.filter(pk=world.tenant.pk).update(allowed_networks=[])
    eventually(lambda: world.called() == "failed")
