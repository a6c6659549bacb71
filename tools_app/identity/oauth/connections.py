"""Connections: what a person allows a client in a tenant. There is one for each of these three together."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.identity.oauth import redirects, scopes, tokens
from tools_app.models import ApiKey, ClientSource, Connection, OAuthClient, Tenant
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
        row, is_new = _get_or_create(
            tenant, person, client, names=names, scope=scope, redirect_uri=redirect_uri, expires_at=expires_at
        )
        if not is_new:
            tokens.lock(row)
            _replace(row, names=names, scope=scope, redirect_uri=redirect_uri, expires_at=expires_at)
    return row


def allow_by_assertion(tenant: Tenant, person: User, client: OAuthClient) -> Connection:
    """Return the connection of a person's client that the company allows, for as long as it goes on doing so.

    One that the person allowed before stays as it is, with its end, and so does an end that an admin set. The change
    log has to be locked before, as for `allow`.
    """
    until = timezone.now() + timedelta(days=ASSERTED_DAYS)
    with transaction.atomic():
        row, is_new = _get_or_create(
            tenant, person, client, scope=" ".join(scopes.SCOPES), expires_at=until, asserted_until=until
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
    tenant: Tenant,
    person: User,
    client: OAuthClient,
    *,
    scope: str,
    expires_at: datetime,
    names: Sequence[str] = (),
    redirect_uri: str = "",
    asserted_until: datetime | None = None,
) -> tuple[Connection, bool]:
    """Return the connection of a person's client in a tenant, and whether it is new."""
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
            row = Connection.objects.create(
                tenant=tenant,
                person=person,
                client=client,
                key_id=key.pk,
                scope=scope,
                redirect_uri=redirect_uri,
                asserted_until=asserted_until,
            )
    except IntegrityError:
        # Another request was first.
        return rows.get(), False
    return row, True


def _replace(row: Connection, *, names: Sequence[str], scope: str, redirect_uri: str, expires_at: datetime) -> None:
    key = row.key
    if key.revoked_at is not None or not scopes.covers(scope, row.scope):
        tokens.end_all(row)
    key.tool_patterns, key.expires_at, key.revoked_at = list(names), expires_at, None
    key.save(update_fields=["tool_patterns", "expires_at", "revoked_at"])
    row.scope, row.redirect_uri, row.consented_at = scope, redirect_uri, timezone.now()
    row.asserted_until = None
    row.save(update_fields=["scope", "redirect_uri", "consented_at", "asserted_until"])


def revoke(connection: Connection) -> bool:
    """End a connection. Return False if it had ended. All processes apply it within a second."""
    tokens.end_all(connection)
    return keys.revoke(connection.key)


def of_person(person: User) -> QuerySet[Connection]:
    """Return the connections of a person, the latest first."""
    return Connection.objects.filter(person=person).select_related("client", "tenant", "key")
