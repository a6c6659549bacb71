# ruff: noqa: PLC0415 - what needs Django is imported once it is set up
"""Uses the upgraded database of an earlier version, in its own process, and prints the results as JSON.

python -m tests.archives.use CALL    # with the database and the keys of the archive in the environment
"""

import json
import sys
from io import StringIO
from typing import Any

import django

STOP_SECONDS = 30.0


def verified() -> str:
    """The last line of `verify_audit`, or its findings."""
    from django.core.management import CommandError, call_command

    out = StringIO()
    try:
        call_command("verify_audit", stdout=out)
    except CommandError:
        return out.getvalue()
    return out.getvalue().splitlines()[-1]


def client_responses(url: str, key: str) -> dict[str, Any]:
    """The responses to a client with the old key."""
    from tests.wire.client import MODERN, RawClient, message_of

    client = RawClient(url, key)
    old, new = client.handshake(), client.peer(MODERN)
    return {
        "tools": sorted(tool["name"] for tool in message_of(new.request("tools/list"))["result"]["tools"]),
        "old era": old.result("echo", {"message": "again"})["content"][0]["text"],
        "new era": new.result("echo", {"message": "again"})["content"][0]["text"],
        "resource": message_of(new.request("resources/read", {"uri": "docs://guide"}))["result"]["contents"][0]["text"],
        "prompt": message_of(new.request("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}}))["result"],
        "nobody": RawClient(url, "nobody's key").initialize().status_code,
    }


def pages(call_id: str) -> dict[str, Any]:
    """The admin's pages of old rows."""
    from django.test import Client
    from django.urls import reverse

    from tools_app.catalog import authoring
    from tools_app.models import Call, CallPayload, Change, Membership, Secret, Session, ToolRevision

    client = Client()
    client.force_login(Membership.objects.get(user__username="ada").user)
    page = client.get(reverse("admin:tools_app_call_change", args=[call_id]))
    return {
        "status": page.status_code,
        "has its result": "hello h" in page.content.decode(),
        "list": client.get(reverse("admin:tools_app_call_changelist")).status_code,
        "outcomes": sorted(set(Call.objects.values_list("outcome", flat=True))),
        "packed": any("a long message" in row.texts().arguments for row in CallPayload.objects.exclude(packed=None)),
        "secret": authoring.decrypt_secret(Secret.objects.get(name="upstream")),
        "revisions": ToolRevision.objects.filter(tool__name="search").count(),
        "kept": all(model.objects.exists() for model in (Change, Session)),
    }


def main() -> None:
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from tools_app.audit.recorder import recorder
    from tools_app.server.base import bind
    from tools_app.server.embedded import EmbeddedHub

    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]
    call_command("migrate", verbosity=0)
    found: dict[str, Any] = {"verified": verified(), "pages": pages(sys.argv[1])}
    hub = EmbeddedHub(bind("127.0.0.1", 0))
    hub.start_in_thread()
    try:
        found["responses"] = client_responses(hub.url, sys.argv[2])
    finally:
        hub.stop()
        hub.join(STOP_SECONDS)
        recorder.current.stop()
    found["verified again"] = verified()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
