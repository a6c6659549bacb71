"""Connections: what a person allows a client in a tenant. There is one for each of these three together.

Signals record what a person allows. Changes by others, and the end, are recorded here, in their transaction.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.identity.oauth import redirects, scopes, tokens
from tools_app.models import Action, ApiKey, ClientSource, Connection, OAuthClient, Tenant, Toolset
from tools_app.tenants import keys

# The lifetimes that a person chooses from, in days.
LIFETIMES: Final = (7, 30, 90)
DEFAULT_LIFETIME: Final = 90
# A connection that each assertion of an issuer renews.
ASSERTED_DAYS: Final = 1


def find(tenant: Tenant, person: User, client: OAuthClient) -> Connection | None:
    """Return the valid connection of a person's client in a tenant."""
    rows = Connection.objects.filter(tokens.valid_connections(), tenant=tenant, person=person, client=client)
    return rows.select_related("key").first()


def needs_no_consent(connection: Connection, redirect_uri: str, scope: str) -> bool:
    """Whether a client may get a code without asking again: same website, nothing more than it has.

    A client on the person's computer proves nothing of itself, so that it is asked for each time (RFC 8252, section
    8.6), as is one that registered itself.
    """
    return (
        connection.client.source == ClientSource.DOCUMENT
        and redirects.is_https(redirect_uri)
        and connection.redirect_uri == redirect_uri
        and scopes.covers(connection.scope, scope)
    )


def allow(
    tenant: Tenant,
    person: User,
    client: OAuthClient,
    *,
    names: Sequence[str],
    scope: str,
    redirect_uri: str,
    days: int,
) -> Connection:
    """Store what a person allowed, in place of what the same client had before. `names`: empty for everything.

    What is recorded of it locks the change log, which has to be locked before.
    """
    expires_at = timezone.now() + timedelta(days=days)
    with transaction.atomic():
        row, is_new = _get_or_create(tenant, person, client, names, expires_at, scope=scope, redirect_uri=redirect_uri)
        if not is_new:
            tokens.lock(row)
            key = row.key
            if key.revoked_at is not None or not scopes.covers(scope, row.scope):
                tokens.end_all(row)
            key.tool_patterns, key.expires_at, key.revoked_at = list(names), expires_at, None
            key.save(update_fields=["tool_patterns", "expires_at", "revoked_at"])
            row.scope, row.redirect_uri, row.consented_at = scope, redirect_uri, timezone.now()
            row.asserted_until = None
            row.save(update_fields=["scope", "redirect_uri", "consented_at", "asserted_until"])
    return row


def allow_by_assertion(tenant: Tenant, person: User, client: OAuthClient) -> Connection:
    """Return the connection of a person's client that the company allows, for as long as it goes on doing so.

    One that the person allowed before stays as it is, with its end, and so does an end that an admin set. The change
    log has to be locked before, as for `allow`.
    """
    until = timezone.now() + timedelta(days=ASSERTED_DAYS)
    with transaction.atomic():
        row, is_new = _get_or_create(
            tenant, person, client, (), until, scope=" ".join(scopes.SCOPES), asserted_until=until
        )
        if not is_new:
            tokens.lock(row)
            # An admin may have set another end. Not a change by anybody, so it is not recorded as one.
            asserted = ApiKey.objects.filter(pk=row.key_id, expires_at=row.asserted_until)
            if row.asserted_until is not None and asserted.update(expires_at=until):
                Connection.objects.filter(pk=row.pk).update(asserted_until=until)
    return row


def was_asked_for(connection: Connection) -> bool:
    """Whether the person was asked, so that no assertion gives the client more than the connection has."""
    return bool(connection.redirect_uri) or connection.asserted_until is None


def _get_or_create(
    tenant: Tenant, person: User, client: OAuthClient, names: Sequence[str], expires_at: datetime, **columns: Any
) -> tuple[Connection, bool]:
    """Return the connection of a person's client in a tenant, and whether it is new. A new one gets these columns."""
    rows = Connection.objects.filter(tenant=tenant, person=person, client=client)
    if row := rows.first():
        return row, False
    try:
        with transaction.atomic():
            key, _ = keys.issue(
                tenant,
                f"{client.name} ({person.get_username()})"[:200],
                expires_at=expires_at,
                created_by=person,
                tool_patterns=list(names),
                # The key itself is thrown away: only tokens lead to this row.
                prefix=keys.CONNECTION_PREFIX,
            )
            row = Connection.objects.create(tenant=tenant, person=person, client=client, key_id=key.pk, **columns)
    except IntegrityError:
        # Another request was first.
        return rows.get(), False
    return row, True


def change_access(row: Connection, fields: Mapping[str, Any]) -> bool:
    """Change names, methods, networks, limits or the expiry of a connection. Return False if nothing changed.

    All processes apply it within a second. Its person can choose other names when the client asks again.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Toolset):
            return value.name
        return value.isoformat() if isinstance(value, datetime) else value

    with changes.change_log_transaction():
        key = row.key
        key.refresh_from_db()
        changed = {name: value for name, value in fields.items() if getattr(key, name) != value}
        if not changed:
            return False
        before = {name: plain(getattr(key, name)) for name in changed}
        for name, value in changed.items():
            setattr(key, name, value)
        # Not by `save`, whose signal would record a change of a key.
        ApiKey.objects.filter(pk=key.pk).update(**changed)
        changes.record(
            Action.CHANGED, row, before=before, after={name: plain(value) for name, value in changed.items()}
        )
        return True


def revoke(connection: Connection) -> bool:
    """End a connection and its tokens. Return False if it had ended. All processes apply it within a second."""
    with changes.change_log_transaction():
        tokens.end_all(connection)
        if not keys.revoke(connection.key):
            return False
        changes.record(Action.REVOKED, connection)
        return True
