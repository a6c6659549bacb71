"""Connections of workloads: programs that prove by a token of an issuer who they are, and have no secret here.

Whether they exchange the token for one of the hub, or use it as it is, makes no difference here.

There is one connection for each subject of an issuer and each rule on claims that it met, with the names and methods of
that rule. A changed rule makes other connections, and the tokens of the earlier ones end. The new connection of a
subject keeps the toolset of its last one, and how its tools are listed.
"""

from datetime import timedelta
from hashlib import sha256
from typing import Final

import orjson
from django.db import IntegrityError, transaction
from django.db.models.functions import Length
from django.utils import timezone

from tools_app.access import keys
from tools_app.access.issuers.rules import Rule
from tools_app.access.oauth import scopes, tokens
from tools_app.models import AccessToken, ApiKey, ClientSource, Connection, Issuer, OAuthClient

MAX_WORKLOADS: Final = 1000
MAX_SUBJECT: Final = 500
MAX_NAME: Final = 100
# The key of a connection outlives its access tokens by little: each assertion renews it.
LIFETIME: Final = timedelta(days=1)


class TooManyWorkloads(Exception):
    """So many workloads of the issuer have access now that no further one gets it."""


class IssuerChanged(Exception):
    """The issuer was changed or turned off while a token of it was verified."""


def connect(issuer: Issuer, subject: str, rule: Rule) -> Connection:
    """Return the connection of a workload, valid from now on for LIFETIME. Raises TooManyWorkloads.

    One that an admin ended stays ended.
    """
    terms = sha256(orjson.dumps([rule.names, rule.methods])).hexdigest()[:12]
    client_id = f"{_start(issuer)}{terms}:{subject}"
    rows = Connection.objects.filter(client__client_id=client_id).select_related("client", "key", "tenant")
    row = rows.first()
    if row is None:
        try:
            with transaction.atomic():
                return _create(issuer, client_id, subject, rule)
        except IntegrityError:
            # A job of the same subject was first.
            row = rows.get()
    # Not a change by anybody, so it is not recorded as one.
    ApiKey.objects.filter(pk=row.key_id).update(expires_at=timezone.now() + LIFETIME)
    return row


def lock(issuer: Issuer) -> None:
    """Keep an issuer as it is until the transaction ends. Raises IssuerChanged if it is not as it was read.

    So that what is stored for a token was not decided by rules that have changed while the token was verified.
    """
    rows = Issuer.objects.select_for_update(of=("self",), no_key=True)
    unchanged = rows.filter(
        pk=issuer.pk, is_active=True, use=issuer.use, issuer=issuer.issuer, audience=issuer.audience
    )
    if unchanged.values_list("rules", flat=True).first() != issuer.rules:
        raise IssuerChanged


def end_tokens(issuer: Issuer) -> None:
    """End the access tokens of all workloads of an issuer: its rules have changed, or it is turned off."""
    AccessToken.objects.filter(connection__client__client_id__startswith=_start(issuer)).delete()


def end_all(issuer: Issuer) -> None:
    """End the connections of all workloads of an issuer that is deleted."""
    for row in Connection.objects.filter(client__client_id__startswith=_start(issuer)).select_related("key"):
        tokens.end_all(row)
        keys.revoke(row.key)


def _create(issuer: Issuer, client_id: str, subject: str, rule: Rule) -> Connection:
    live = Connection.objects.filter(
        client__client_id__startswith=_start(issuer), key__expires_at__gt=timezone.now(), key__revoked_at=None
    )
    if live.count() >= MAX_WORKLOADS:
        raise TooManyWorkloads
    name = f"{issuer.name}: {subject}"[:MAX_NAME]
    last = _last_key(issuer, client_id, subject)
    key, _ = keys.issue(
        issuer.tenant,
        name,
        expires_at=timezone.now() + LIFETIME,
        tool_patterns=rule.names,
        methods=rule.methods,
        prefix=keys.CONNECTION_PREFIX,
        toolset=last.toolset if last else None,
        presentation=last.presentation if last else "",
    )
    client = OAuthClient.objects.create(
        client_id=client_id, source=ClientSource.WORKLOAD, name=name, grant_types=[], auth_method="none"
    )
    return Connection.objects.create(
        tenant=issuer.tenant, person=None, client=client, key_id=key.pk, scope=" ".join(scopes.SCOPES), redirect_uri=""
    )


def _last_key(issuer: Issuer, client_id: str, subject: str) -> ApiKey | None:
    """Return the key of the last connection that a subject got by another rule."""
    rows = Connection.objects.filter(
        tenant=issuer.tenant_id,
        client__client_id__startswith=_start(issuer),
        client__client_id__endswith=f":{subject}",
    ).annotate(length=Length("client__client_id"))
    # Of the same length: the subject of another may end like this one.
    row = rows.filter(length=len(client_id)).select_related("key__toolset").order_by("-created_at").first()
    return row.key if row else None


def _start(issuer: Issuer) -> str:
    return f"workload:{issuer.pk}:"
