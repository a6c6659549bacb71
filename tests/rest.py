"""Fixtures of the REST API's tests: users by role, and clients with a session or a token."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import transaction
from django.test import Client

from tests.worlds import World, person
from tools_app.identity import personal_tokens as tokens
from tools_app.models import Role

ROOT = "/api/v1/"


@dataclass
class Api:
    """A client of the REST API for one user. Paths are relative to ROOT."""

    headers: dict[str, str] = field(default_factory=dict)
    client: Client = field(default_factory=Client)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        options = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        return self.client.generic(method, f"{ROOT}{path}", headers={**self.headers, **headers}, **options)

    def get(self, path: str, **headers: str) -> Any:
        response = self.request("GET", path, **headers)
        assert response.status_code == 200, response.content
        return response.json()

    def post(self, path: str, body: Any = None, status: int = 201) -> Any:
        response = self.request("POST", path, body or {})
        assert response.status_code == status, response.content
        return response.json()

    def patch(self, path: str, body: Any, status: int = 200, **headers: str) -> Any:
        response = self.request("PATCH", path, body, **headers)
        assert response.status_code == status, response.content
        return response.json()


@pytest.fixture(autouse=True)
def _fast_and_unthrottled(settings: Any) -> None:
    settings.WHITENOISE_USE_FINDERS = False
    settings.MCPHUB_API_REQUESTS_PER_MINUTE = 0
    cache.clear()


@pytest.fixture
def people(acme: World, globex: World) -> dict[str, User]:
    """A user for each role in acme, and users outside of it."""
    return {
        "superuser": User.objects.create_superuser("superuser"),
        "admin": person("admin", acme.tenant),
        "auditor": person("auditor", acme.tenant, Role.AUDITOR),
        "operator": person("operator", acme.tenant, Role.OPERATOR),
        "stranger": person("stranger", globex.tenant),
        "outsider": person("outsider"),
    }


@pytest.fixture
def undone(db: None) -> Any:
    """A context manager that rolls back the changes made within it."""

    @contextmanager
    def block() -> Iterator[None]:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)

    return block


@pytest.fixture
def as_(people: dict[str, User]) -> Any:
    """A client with this user's session or token; without credentials for `anonymous`."""

    def api(name: str, login: str = "session") -> Api:
        one = Api()
        if name == "anonymous":
            return one
        if login == "session":
            one.client.force_login(people[name])
        else:
            one.headers["Authorization"] = f"Bearer {tokens.issue(people[name], 'script')[1]}"
        return one

    return api
