"""The examples of docs/api.md, run in a shell against a hub."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tools_app.identity import personal_tokens as tokens
from tools_app.models import Tenant, Tool
from tools_app.server.embedded import EmbeddedHub
from tools_app.web.api.problems import NAMES

PAGE = (Path(__file__).resolve().parents[2] / "docs/api.md").read_text()
EXAMPLES = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
LIMIT_SECONDS = 120.0


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_examples_are_answered(hub: EmbeddedHub) -> None:
    Tenant.objects.create(slug="demo", name="Demo")
    token = tokens.issue(User.objects.create_superuser("admin"), "script")[1]
    script = EXAMPLES[0].replace("http://127.0.0.1:8000", hub.url).replace("mcphubt_...", token)
    responses = []
    for example in (script, *EXAMPLES[1:]):
        start = "" if example is script else script.splitlines()[0]
        done = subprocess.run(
            ["sh", "-c", f"{start}\n{example}"], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
        )
        responses.append(json.loads(done.stdout))
    me, tool, calls = responses
    assert (me["username"], me["login"]) == ("admin", "token")
    assert Tool.objects.get(pk=tool["id"]).name == "find_book"
    assert (calls["results"], calls["complete"]) == ([], True)


@pytest.mark.django_db
def test_the_error_is_the_one_that_is_answered(client: Client) -> None:
    Tenant.objects.create(slug="demo", name="Demo")
    client.force_login(User.objects.create_superuser("admin"))
    tool = {"tenant": "demo", "name": "find_book", "kind": "http"}
    tool |= {"input_schema": {"type": "object"}, "config": {"base_url": "books.example.com/v1"}}

    response = client.post("/api/v1/tools/", tool, content_type="application/json")

    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert response.json() == json.loads(shown)


def test_every_status_of_an_error_is_listed() -> None:
    listed = dict(re.findall(r"^\| (\d{3}) \| `([a-z-]+)` \|", PAGE, re.MULTILINE))
    assert {int(status): name for status, name in listed.items()} == NAMES
