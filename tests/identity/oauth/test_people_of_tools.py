"""Tools that need a person run for the user who connected the client."""

import json
from collections.abc import Callable
from urllib.parse import urlsplit

from django.contrib.auth.models import User

from tests.identity.oauth.person import Application, Person
from tests.wire.client import MODERN, RawClient
from tools_app.server.embedded import EmbeddedHub
from tools_app.toolkit import model_tools


def test_a_tool_of_a_django_app_runs_for_the_person_of_the_connection(
    hub: EmbeddedHub, registries: None, ann: Person, application: Application, offer: Callable[..., object]
) -> None:
    model_tools(User, fields=["username"], queryset=lambda person, _tenant: User.objects.filter(pk=person.pk))
    offer("list_user")
    User.objects.create_user("ben")
    application.register()
    token = application.exchange(ann.connect(application.url(), ["list_user"])).json()["access_token"]

    client = RawClient(hub.url, token, urlsplit(application.resource).path)
    with client.http:
        result = client.peer(MODERN).result("list_user")

    assert [row["username"] for row in json.loads(result["content"][0]["text"])["rows"]] == ["ann"]
