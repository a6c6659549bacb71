"""Connections of workloads: programs that prove by a token of an issuer who they are, and have no secret here.

Whether they exchange the token for one of the hub, or use it as it is, makes no difference here.

There is one connection for each subject of an issuer and each rule on claims that it met, with the names and methods of
that rule. A changed rule makes other connections, and the tokens of the earlier ones end. The new connection of a
subject keeps the toolset of its last one, and how its tools are listed.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

import orjson
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Length
from django.utils import timezone

from tools_app.identity.oauth import scopes, tokens
from tools_app.identity.people.rules import Rule
from tools_app.models import AccessToken, ApiKey, ClientSource, Connection, Issuer, OAuthClient
from tools_app.tenants import keys

# With a token within LIFETIME, and ever (until they are pruned).
MAX_WORKLOADS: Final = 1000
MAX_KNOWN: Final = 10_000
MAX_SUBJECT: Final = 500
MAX_NAME: Final = 100
# No access token is valid for longer. A connection without a token gives nothing, so its key has no end but that which
# an admin sets, and no token changes that one.
LIFETIME: Final = timedelta(days=1)
KEEP_UNUSED: Final = timedelta(days=7)
MAX_PRUNED: Final = 500


class WorkloadRejected(Exception):
    """A workload gets no access: its issuer has too many now, or has changed while a token of it was verified."""


def subject_of(claims: Mapping[str, Any]) -> str:
    """Return whom claims are about; "" if they do not say it in at most MAX_SUBJECT printable characters."""
    subject = claims.get("sub")
    is_valid = isinstance(subject, str) and len(subject) <= MAX_SUBJECT and subject.isprintable()
    return str(subject) if is_valid else ""


def connect(issuer: Issuer, subject: str, rule: Rule) -> Connection:
    """Return the connection of a workload. Raises WorkloadRejected.

    One that an admin ended stays ended, and an end that an admin set stays as it is.
    """
    client_id = f"{_start(issuer)}{_terms(rule.names, rule.methods)}:{subject}"
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
    Connection.objects.filter(pk=row.pk).update(consented_at=timezone.now())
    return row


def lock(issuer: Issuer) -> None:
    """Keep an issuer as it is until the transaction ends. Raises WorkloadRejected if it is not as it was read.

    So that what is stored for a token was not decided by rules that have changed while the token was verified.
    """
    rows = Issuer.objects.select_for_update(of=("self",), no_key=True)
    unchanged = rows.filter(
        pk=issuer.pk, is_active=True, use=issuer.use, issuer=issuer.issuer, audience=issuer.audience
    )
    if unchanged.values_list("rules", flat=True).first() != issuer.rules:
        raise WorkloadRejected("The issuer has just been changed. Try again.")


def end_tokens(issuer: Issuer) -> None:
    """End the access tokens of all workloads of an issuer: its rules have changed, or it is turned off."""
    AccessToken.objects.filter(connection__client__client_id__startswith=_start(issuer)).delete()


def end_all(issuer: Issuer) -> None:
    """End the connections of all workloads of an issuer that is deleted."""
    for row in Connection.objects.filter(client__client_id__startswith=_start(issuer)).select_related("key"):
        tokens.end_all(row)
        keys.revoke(row.key)


def delete_all(issuer: Issuer) -> None:
    """Delete the connections of all workloads of an issuer whose place another takes, with subjects of its own."""
    ApiKey.objects.filter(connection__client__client_id__startswith=_start(issuer)).delete()
    OAuthClient.objects.filter(client_id__startswith=_start(issuer)).delete()


def prune(now: datetime) -> None:
    """Delete connections without a token for KEEP_UNUSED, but for those that an admin ended or changed."""
    unused = Connection.objects.filter(
        client__source=ClientSource.WORKLOAD,
        client__blocked_at=None,
        consented_at__lt=now - KEEP_UNUSED,
        key__revoked_at=None,
        key__expires_at=None,
        key__toolset=None,
        key__presentation="",
        **{f"key__{name}": None for name in keys.LIMITS},
    )
    rows = unused.order_by("consented_at").select_related("client", "key").iterator(chunk_size=MAX_PRUNED)
    # All are read: SQLite lets no connection write that has an earlier state open.
    found = [
        row
        for row in rows
        if row.client.client_id.split(":")[2] == _terms(row.key.tool_patterns, row.key.methods) and not row.key.networks
    ][:MAX_PRUNED]
    with transaction.atomic():
        # Read again: a token may have come meanwhile.
        still = unused.filter(pk__in=[row.pk for row in found]).select_for_update(of=("self",))
        ended = list(still.values_list("key_id", "client_id"))
        ApiKey.objects.filter(pk__in=[key for key, _ in ended]).delete()
        OAuthClient.objects.filter(pk__in=[client for _, client in ended], connections=None).delete()


def _terms(names: list[str], methods: list[str]) -> str:
    return sha256(orjson.dumps([names, methods])).hexdigest()[:12]


def _create(issuer: Issuer, client_id: str, subject: str, rule: Rule) -> Connection:
    now = timezone.now()
    known: QuerySet[Connection] = Connection.objects.filter(client__client_id__startswith=_start(issuer))
    unexpired = Q(key__expires_at=None) | Q(key__expires_at__gt=now)
    live = known.filter(unexpired, key__revoked_at=None, consented_at__gt=now - LIFETIME)
    if live.count() >= MAX_WORKLOADS or known.count() >= MAX_KNOWN:
        raise WorkloadRejected(f"The issuer has stated {MAX_WORKLOADS} subjects.")
    name = f"{issuer.name}: {subject}"[:MAX_NAME]
    # By another rule. Of the same length: the subject of another may end like this one.
    former = known.filter(tenant=issuer.tenant_id, client__client_id__endswith=f":{subject}")
    former = former.annotate(length=Length("client__client_id")).filter(length=len(client_id))
    row = former.select_related("key__toolset").order_by("-created_at").first()
    last = row.key if row else None
    key, _ = keys.issue(
        issuer.tenant,
        name,
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


def _start(issuer: Issuer) -> str:
    return f"workload:{issuer.pk}:"
