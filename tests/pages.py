"""Fixtures of the tests of pages: users with each role, and the addresses of pages."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests.worlds import World, person
from tools_app.models import Role


def rows_of(response: Any) -> list[Any]:
    """The rows of a list page. The list of calls is not a change list of Django's."""
    found = response.context.get("found")
    return found.calls if found else list(response.context["cl"].queryset)


@pytest.fixture(autouse=True)
def _no_static_files(settings: Any) -> None:
    """Skip the search for static files, which takes longer than any of these tests."""
    settings.WHITENOISE_USE_FINDERS = False


@pytest.fixture
def people(acme: World, globex: World) -> dict[str, User]:
    """A user for each role in acme, and users outside of it."""
    person("auditor", acme.tenant, Role.AUDITOR)
    person("globex_auditor", globex.tenant, Role.AUDITOR)
    return {
        "superuser": User.objects.create_superuser("superuser"),
        "admin": person("admin", acme.tenant),
        "teammate": person("teammate", acme.tenant),
        "auditor": User.objects.get(username="auditor"),
        "operator": person("operator", acme.tenant, Role.OPERATOR),
        "stranger": person("stranger", globex.tenant),
        "outsider": person("outsider"),
    }


@pytest.fixture
def as_(people: dict[str, User]) -> Any:
    """A test client logged in as this user; not logged in for `anonymous`."""

    def browser(name: str) -> Client:
        client = Client()
        if name != "anonymous":
            client.force_login(people[name])
        return client

    return browser


@pytest.fixture
def page() -> Any:
    """The URL of a page: `page("apikey", "change", row)`."""

    def address(model: str, view: str, row: Any = None) -> str:
        app = "auth" if model == "user" else "tools_app"
        return reverse(f"admin:{app}_{model}_{view}", args=[row.pk] if row else [])

    return address
