# ruff: noqa: PLC0415 - what needs Django is imported once it is set up
"""The upgrade of sign-in data of migration 0031: `python -m tests.archives.sign_in` prints the upgraded rows."""

import json
import secrets
import sys
from datetime import timedelta
from typing import Any

import django
from django.utils import timezone

OLD = [("tools_app", "0001_squashed_0031_used_assertions"), ("auth", "0012_alter_user_first_name_max_length")]
METHODS = ("none", "client_secret_post", "private_key_jwt")


def fill(apps: Any) -> None:
    """Create a user of an issuer with one connected client of each kind, with the models of that version."""
    tenant = apps.get_model("tools_app", "Tenant").objects.create(slug="acme", name="Acme")
    person = apps.get_model("auth", "User").objects.create(username="ann")
    apps.get_model("tools_app", "Membership").objects.create(tenant=tenant, user=person, role="admin")
    issuer = apps.get_model("tools_app", "Issuer").objects.create(
        tenant=tenant, name="Acme Login", issuer="https://login.acme.example", client_id="hub"
    )
    apps.get_model("tools_app", "Identity").objects.create(issuer=issuer, subject="u1", person=person)
    ends = timezone.now() + timedelta(days=1)
    for method in METHODS:
        client = apps.get_model("tools_app", "OAuthClient").objects.create(
            client_id=method, source="dynamic", name=method, auth_method=method
        )
        key = apps.get_model("tools_app", "ApiKey").objects.create(
            tenant=tenant, name=method, prefix="sign-in", digest=secrets.token_hex(32)
        )
        connection = apps.get_model("tools_app", "Connection").objects.create(
            tenant=tenant, person=person, client=client, key=key, scope="mcp:read mcp:call", redirect_uri=""
        )
        apps.get_model("tools_app", "RefreshToken").objects.create(
            digest=secrets.token_hex(32), connection=connection, family=connection.pk, scope="mcp:call", expires_at=ends
        )


def found() -> dict[str, Any]:
    """Return the upgraded rows."""
    from tools_app.access.oauth import clients, tokens
    from tools_app.models import Identity, RefreshToken

    rows = list(RefreshToken.objects.select_related("connection__client"))
    return {
        "bound": {row.connection.client.client_id: row.is_bound for row in rows},
        "methods": {row.connection.client.client_id: clients.methods_of(row.connection.client) for row in rows},
        "valid": [tokens.is_valid(row.connection) for row in rows],
        "signed in": Identity.objects.get().signed_in_at <= timezone.now(),
    }


def main() -> None:
    """Migrate to the old version, fill it, migrate to this one, and print the rows."""
    django.setup()
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    fill(MigrationExecutor(connection).migrate(OLD).apps)
    call_command("migrate", verbosity=0)
    sys.stdout.write(json.dumps(found()) + "\n")


if __name__ == "__main__":
    main()
