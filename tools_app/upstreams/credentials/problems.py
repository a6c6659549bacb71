"""What is wrong with the stored credentials of upstreams, for a tenant's admins. Never a value."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from django.utils import timezone

from tools_app.models import CredentialKind, CredentialOwner, Upstream, UpstreamCredential
from tools_app.upstreams.credentials import store
from tools_app.upstreams.credentials.owners import is_usable

# Credentials of one upstream that are named; the rest is counted.
MAX_NAMED: Final = 5
# Credentials that are examined together.
MAX_EXAMINED: Final = 10_000
MISSING: Final = {
    CredentialOwner.TENANT: "The tenant has no credential yet: calls are refused.",
    CredentialOwner.KEY: "No API key has a credential yet.",
    CredentialOwner.PERSON: "No person has entered a credential yet.",
}


def problems_of(upstreams: Iterable[Upstream]) -> Mapping[UUID, list[str]]:
    """Return the problems of each upstream that needs credentials and has some; for people."""
    by_id = {upstream.pk: upstream for upstream in upstreams if upstream.credential}
    rows = UpstreamCredential.objects.filter(is_usable(), upstream__in=by_id).defer("ciphertext")
    by_upstream: defaultdict[UUID, list[UpstreamCredential]] = defaultdict(list)
    for row in rows.select_related("key", "person").order_by("upstream", "created_at")[:MAX_EXAMINED]:
        by_upstream[row.upstream_id].append(row)
    return {pk: problems for pk, upstream in by_id.items() if (problems := _problems(upstream, by_upstream[pk]))}


def _problems(upstream: Upstream, rows: list[UpstreamCredential]) -> list[str]:
    owner = CredentialOwner(upstream.credential_owner)
    used = [row for row in rows if _is_used(row, owner)]
    if not used:
        return [MISSING[owner]]
    problems = [f"{_label(row)}: {problem}" for row in used if (problem := _problem(upstream, row))]
    unnamed = len(problems) - MAX_NAMED
    return [*problems[:MAX_NAMED], *([f"And {unnamed} more."] if unnamed > 0 else [])]


def _is_used(row: UpstreamCredential, owner: CredentialOwner) -> bool:
    """Whether calls use it: an upstream whose owner was changed may have others."""
    match owner:
        case CredentialOwner.KEY:
            return row.key_id is not None
        case CredentialOwner.PERSON:
            return row.person_id is not None
    return row.key_id is None and row.person_id is None


def _problem(upstream: Upstream, row: UpstreamCredential) -> str:
    if row.kind != upstream.credential or row.origin != store.origin_of(upstream.url):
        return "It is for other settings or another address of the upstream. Enter it again."
    if row.expires_at is not None and row.expires_at <= timezone.now() and row.refresh_at is None:
        return f"It has expired. {row.problem or 'Sign in again.'}"
    if row.wanted_scopes and row.kind == CredentialKind.OAUTH:
        return f"{row.problem} Sign in again to allow: {row.wanted_scopes}."
    return row.problem


def _label(row: UpstreamCredential) -> str:
    return f"Of {row.owner_name}"
