# ruff: noqa: PLC0415 - what needs Django is imported once it is set up
"""Upgrades and uses the database of an earlier version, in its own process, and prints the results as JSON.

python -m tests.archives.use CALL KEY    # with the database and the keys of the archive in the environment
"""

import json
import sys
from io import StringIO
from typing import Any

import django

STOP_SECONDS = 30.0


def row_counts() -> dict[str, int]:
    """The number of rows of each table."""
    from django.db import connection

    with connection.cursor() as cursor:
        counts = {}
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(table)}")
            counts[table] = cursor.fetchone()[0]
        return counts


def verified() -> str:
    """The last line of `verify_audit`, or its findings."""
    from django.core.management import CommandError, call_command

    out = StringIO()
    try:
        call_command("verify_audit", stdout=out)
    except CommandError:
        return out.getvalue()
    return out.getvalue().splitlines()[-1]


def responses(url: str, key: str) -> dict[str, Any]:
    """The responses to a client with the old key."""
    from tests.wire.client import MODERN, RawClient, message_of

    client = RawClient(url, key)
    old, new = client.handshake(), client.peer(MODERN)
    prompt = message_of(new.request("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}}))["result"]
    return {
        "tools": sorted(tool["name"] for tool in message_of(new.request("tools/list"))["result"]["tools"]),
        "handshake": old.result("echo", {"message": "again"})["content"][0]["text"],
        "modern": new.result("echo", {"message": "again"})["content"][0]["text"],
        "resource": message_of(new.request("resources/read", {"uri": "docs://guide"}))["result"]["contents"][0]["text"],
        "prompt": prompt["messages"][0]["content"]["text"],
        "nobody": RawClient(url, "nobody's key").initialize().status_code,
    }


def pages(call_id: str) -> dict[str, Any]:
    """The admin's pages of old rows."""
    from django.test import Client
    from django.urls import reverse

    from tools_app.catalog import authoring
    from tools_app.models import CallPayload, Membership, Secret

    client = Client()
    client.force_login(Membership.objects.get(user__username="ada").user)
    page = client.get(reverse("admin:tools_app_call_change", args=[call_id]))
    return {
        "call": page.status_code,
        "its result": "hello h" in page.content.decode(),
        "calls": client.get(reverse("admin:tools_app_call_changelist")).status_code,
        "packed": any("a long message" in row.texts().arguments for row in CallPayload.objects.exclude(packed=None)),
        "secret": authoring.decrypt_secret(Secret.objects.get(name="upstream")),
    }


def main() -> None:
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from tools_app.audit.recorder import recorder
    from tools_app.server.base import bind
    from tools_app.server.embedded import EmbeddedHub

    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]
    before = row_counts()
    call_command("migrate", verbosity=0)
    after = row_counts()
    found: dict[str, Any] = {
        "tables with fewer rows": [table for table, count in before.items() if after.get(table, 0) < count],
        "verified": verified(),
        **pages(sys.argv[1]),
    }
    hub = EmbeddedHub(bind("127.0.0.1", 0))
    hub.start_in_thread()
    try:
        found |= responses(hub.url, sys.argv[2])
    finally:
        hub.stop()
        hub.join(STOP_SECONDS)
        recorder.current.stop()
    found["verified again"] = verified()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
