"""The OpenAPI document, tested with schemathesis: every operation with valid and invalid requests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.stack import Stack

CONFIG = Path(__file__).with_name("schemathesis.toml")
LIMIT_SECONDS = 900.0
# A user of each role, with the arguments that create it and the phases to run. An operator creates nothing to follow.
# The phase "coverage" tries each bound of each field, which `tests/web/test_field_bounds.py` does in no time.
PEOPLE = {
    "superuser": ("is_superuser=True", "examples,fuzzing,stateful"),
    "operator": ("is_superuser=False", "examples,fuzzing"),
}
CALL = """
from datetime import datetime, UTC
from uuid import UUID
from tools_app.models import Call, CallEvent, CallPayload, Tenant
id = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
facts = dict(tenant=Tenant.objects.get(slug="demo"), tool_name="echo", outcome="ok", duration_us=5, writer=id)
moment = datetime.now(UTC)
Call.objects.get_or_create(id=id, defaults=facts | dict(started_at=moment, finished_at=moment))
CallPayload.objects.get_or_create(call_id=id, defaults=dict(arguments="{}", result="{}"))
CallEvent.objects.get_or_create(call_id=id, sequence=1, defaults=dict(kind="log", data="{}"))
"""
TOKEN = """
from django.contrib.auth.models import User
from tools_app.identity import personal_tokens as tokens
from tools_app.models import Membership, Tenant
person = User.objects.create(username="{name}", {words})
Membership.objects.create(user=person, tenant=Tenant.objects.get(slug="demo"), role="operator")
print(tokens.issue(person, "schemathesis")[1])
"""


@pytest.mark.timeout(LIMIT_SECONDS + 60)
@pytest.mark.parametrize("name", PEOPLE)
def test_schemathesis_finds_nothing(stack: Stack, name: str) -> None:
    words, phases = PEOPLE[name]
    stack.environment["MCPHUB_API_REQUESTS_PER_MINUTE"] = "0"
    web = stack.web("uvicorn")
    stack.shell(CALL)
    token = stack.shell(TOKEN.format(name=name, words=words))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", f"--phases={phases}"]
    done = subprocess.run(
        [*command, f"{web.url}/api/v1/schema/", "--header", f"Authorization: Bearer {token}", "--no-color"],
        cwd=stack.logs,
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    web.terminate()
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
