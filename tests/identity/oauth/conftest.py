"""Fixtures of the tests of OAuth: users who connect applications to a running hub."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.browsers import browser_of, browser_of_admin
from tests.identity.oauth.person import Application, Person
from tools_app.models import Membership, Role, Tenant
from tools_app.server.embedded import EmbeddedHub

PASSWORD = "correct horse battery"


@pytest.fixture
def ann(hub: EmbeddedHub, tenant: Tenant, offer: Callable[..., object]) -> Iterator[Person]:
    """A member of a tenant with tools, at a browser."""
    offer("calculator", "count", "echo")
    user = User.objects.create_user("ann", password=PASSWORD)
    Membership.objects.create(user=user, tenant=tenant, role=Role.OPERATOR)
    with closing(Person(hub.url, "ann", PASSWORD)) as person:
        yield person


@pytest.fixture
def application(hub: EmbeddedHub, tenant: Tenant) -> Iterator[Application]:
    """An application that knows the URL of the tenant's endpoint."""
    with closing(Application(hub.url, f"{hub.url}/t/{tenant.slug}/mcp")) as client:
        yield client


@pytest.fixture
def admin(tenant: Tenant) -> Client:
    """An admin of the tenant, logged in."""
    return browser_of_admin(tenant, "boss")


@pytest.fixture
def superuser(db: None) -> Client:
    """A superuser, logged in."""
    return browser_of(User.objects.create_superuser("root"))
