"""Connections: what a person allows a client in a tenant. There is one for each of these three together."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.access import keys
from tools_app.access.oauth import redirects, scopes, tokens
from tools_app.models import ApiKey, ClientSource, Connection, OAuthClient, Tenant

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
    patterns: Sequence[str],
    scope: str,
    redirect_uri: str,
    days: int,
) -> Connection:
    """Store what a person allowed, in place of what the same client had before. `patterns`: empty for everything."""
    now = timezone.now()
    expires_at = now + timedelta(days=days)
    rows = Connection.objects.filter(tenant=tenant, person=person, client=client).select_related("key")
    connection = rows.first()
    if connection is None:
        try:
            with transaction.atomic():
                key, _ = keys.issue(
                    tenant,
                    f"{client.name} ({person.get_username()})"[:200],
                    expires_at=expires_at,
                    created_by=person,
                    tool_patterns=patterns,
                    # The key itself is thrown away: only tokens lead to this row.
                    prefix=keys.CONNECTION_PREFIX,
                )
                return Connection.objects.create(
                    tenant=tenant, person=person, client=client, key_id=key.pk, scope=scope, redirect_uri=redirect_uri
                )
        except IntegrityError:
            # The person allowed it twice at once, and this is the second.
            connection = rows.get()
    with transaction.atomic():
        key = connection.key
        if key.revoked_at is not None or not scopes.covers(scope, connection.scope):
            tokens.end_all(connection)
        key.tool_patterns, key.expires_at, key.revoked_at = list(patterns), expires_at, None
        key.save(update_fields=["tool_patterns", "expires_at", "revoked_at"])
        connection.scope, connection.redirect_uri, connection.consented_at = scope, redirect_uri, now
        connection.asserted_until = None
        connection.save(update_fields=["scope", "redirect_uri", "consented_at", "asserted_until"])
    return connection


def allow_by_assertion(tenant: Tenant, person: User, client: OAuthClient) -> Connection:
    """Return the connection of a person's client that the company allows, for as long as it goes on doing so.

    One that the person allowed before stays as it is, with its end, and so does an end that an admin set.
    """
    known = Connection.objects.filter(tenant=tenant, person=person, client=client).select_related("key").first()
    if known is None:
        scope = " ".join(scopes.SCOPES)
        row = allow(tenant, person, client, patterns=(), scope=scope, redirect_uri="", days=ASSERTED_DAYS)
        row.asserted_until = row.key.expires_at
        Connection.objects.filter(pk=row.pk).update(asserted_until=row.asserted_until)
        return row
    with transaction.atomic():
        # An admin may set the end at this moment. Not a change by anybody, so it is not recorded as one.
        until = timezone.now() + timedelta(days=ASSERTED_DAYS)
        rows = ApiKey.objects.filter(pk=known.key_id, expires_at=known.asserted_until)
        if known.asserted_until is not None and rows.update(expires_at=until):
            Connection.objects.filter(pk=known.pk, asserted_until=known.asserted_until).update(asserted_until=until)
    return known


def revoke(connection: Connection) -> bool:
    """End a connection. Return False if it had ended. All processes apply it within a second."""
    tokens.end_all(connection)
    return keys.revoke(connection.key)


def of_person(person: User) -> QuerySet[Connection]:
    """Return the connections of a person, the latest first."""
    return Connection.objects.filter(person=person).select_related("client", "tenant", "key")
