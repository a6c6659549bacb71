"""Access tokens that a tenant's issuer signs and clients use as they are, without an exchange (RFC 9068; RFC 8725).

A token is verified when the hub sees it for the first time. From then on it is accepted by its digest until it ends,
as an access token of the hub is: no query and no verification belong to a call, and it ends within a second in all
processes when the issuer, its rules or its use change, or an admin ends the connection.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import orjson
from django.db import IntegrityError, connection

from tools_app.audit.changes.changes import Actor, change_log_transaction, recording_as
from tools_app.core.database import run_in_db_thread
from tools_app.core.process.fair_threads import FairThreads, QueueFull
from tools_app.core.process.runtime import Service
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.identity.issuers import configuration, tokens
from tools_app.identity.models.issuers import MAX_URL
from tools_app.identity.oauth import attempts, resources, scopes, workloads
from tools_app.identity.oauth import tokens as oauth_tokens
from tools_app.identity.people import rules
from tools_app.models import Connection, Issuer, IssuerUse, SignInEvent, SignInStep, Via

T = TypeVar("T")

# Not those of other signed statements, such as identity assertions and logout tokens (RFC 8725, section 3.11).
TOKEN_TYPES: Final = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
MAX_TOKEN: Final = 16 * 1024
MAX_AUDIENCES: Final = 20
MAX_REASON: Final = 300
# Tokens are verified with keys in memory, and keys are read elsewhere: an issuer that does not answer holds up one of
# the threads that read, for the requests of its tenant that wait, and no token that keys in memory verify.
THREADS: Final = 4
KEY_FETCH_THREADS: Final = 32
TIMEOUT_SECONDS: Final = 6.0
# Of all tenants, a tenant being one of very many.
MAX_WAITING: Final = 128
MAX_WAITING_OF_TENANT: Final = 8
Key = tuple[str, str]


class TokenRejected(Exception):
    """A token gives no access; the message says why, and is "" until its signature is verified."""


class TooManyTokens(Exception):
    """Too many tokens are being verified at this moment, or the keys of the issuer cannot be read."""


class TenantQueue:
    """The verifications in progress, or readings of keys: one at a time for each tenant, in threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = FairThreads("direct-tokens", threads, MAX_WAITING, MAX_WAITING_OF_TENANT)

    async def run(self, tenant_id: UUID, work: Callable[[], T]) -> T:
        """Return the result of `work`. Raises TooManyTokens, also if it takes longer than TIMEOUT_SECONDS.

        Work that takes too long keeps its turn until it ends.
        """
        try:
            return await asyncio.wait_for(self._threads.run(tenant_id, work), TIMEOUT_SECONDS)
        except (TimeoutError, QueueFull):
            raise TooManyTokens from None

    def stop(self) -> None:
        """Begin no further work."""
        self._threads.stop()


verifications = Service(TenantQueue, TenantQueue.stop)
key_fetches = Service(lambda: TenantQueue(KEY_FETCH_THREADS), TenantQueue.stop)


class _PresentedToken(NamedTuple):
    """A token that a client at `address` sent to an endpoint (`place`: the slug in its path, "" without one)."""

    issuer: Issuer
    token: str
    endpoint_slug: str
    audiences: Sequence[str]
    address: str


async def accept(token: str, *, origin: str, slug: str | None, address: str) -> None:
    """Accept a token from now on until it ends, in all processes.

    `origin` is the hub's own, `slug` the tenant of the endpoint that was called, None for that of all tenants, and
    `address` the client's. Raises TokenRejected, TooManyTokens and the database's error.
    """
    try:
        _, claims = tokens.decode_unverified(token, MAX_TOKEN)
    except tokens.InvalidToken:
        raise TokenRejected("") from None
    tenant_audiences = _tenant_audiences(claims.get("aud"), origin)
    slugs = {slug} if slug else set(tenant_audiences.values())
    issuer_claim = claims.get("iss")
    if len(slugs) != 1 or not isinstance(issuer_claim, str) or len(issuer_claim) > MAX_URL:
        raise TokenRejected("")
    (tenant_slug,) = slugs
    issuer = await _issuers.get((tenant_slug, issuer_claim))
    if issuer is None:
        raise TokenRejected("")
    audiences = (
        [issuer.audience]
        if issuer.audience
        else [audience for audience, audience_slug in tenant_audiences.items() if audience_slug == tenant_slug]
    )
    presented = _PresentedToken(issuer, token, slug or "", audiences, address)
    try:
        await _verify_with_keys(presented)
    except (tokens.InvalidToken, TokenRejected) as problem:
        reason = str(problem)[:MAX_REASON]
        await run_in_db_thread(_record_rejection, issuer, reason, address)
        raise TokenRejected("" if isinstance(problem, tokens.UnverifiedToken) else reason) from None


async def _verify_with_keys(presented: _PresentedToken) -> None:
    """Verify and store a token, if need be with keys that are read now. Raises what `accept` handles."""
    issuer = presented.issuer
    networks = issuer.tenant.allowed_networks
    try:
        await verifications().run(issuer.tenant_id, lambda: _verify(presented))
        return
    except tokens.UnknownKey:
        if configuration.cached_keys(issuer.issuer, networks) is not None:
            if not configuration.may_refresh_keys(issuer.issuer, networks):
                raise
        elif configuration.recent_failure(issuer.issuer, networks):
            raise TooManyTokens from None
    await key_fetches().run(issuer.tenant_id, lambda: tokens.fetch_keys(issuer))
    await verifications().run(issuer.tenant_id, lambda: _verify(presented))


def forget_all() -> None:
    """Forget the issuers of all tenants (for tests, which empty the database while the hub runs)."""
    _issuers.forget_all()


def accepted_audiences(issuer: Issuer, origin: str) -> list[str]:
    """Return the audiences of tokens of an issuer, which clients use as they are."""
    path = resources.path_of(issuer.tenant.slug)
    return [issuer.audience] if issuer.audience else [f"{origin}{path}", f"{origin}{path}/"]


def _tenant_audiences(audience: Any, origin: str) -> dict[str, str]:
    """Return those of the first audiences of a token that are endpoints of tenants, with their slugs."""
    slugs = {}
    for value in (audience if isinstance(audience, list) else [audience])[:MAX_AUDIENCES]:
        try:
            slug = resources.parse(value, origin).slug if isinstance(value, str) else None
        except resources.UnknownResource:
            continue
        if slug is not None:
            slugs[value] = slug
    return slugs


def check_type(header: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
    """Raise TokenRejected for a signed statement of another kind, and for a token that is bound to a key."""
    if str(header.get("typ", "")).lower() not in TOKEN_TYPES:
        raise TokenRejected("This is no access token: its type (typ) is another one.")
    if "cnf" in claims:
        raise TokenRejected("The token is bound to a key of its client (cnf), which this hub cannot check.")


def _verify(presented: _PresentedToken) -> None:
    """Verify a token with keys in memory, and store it. Raises InvalidToken and TokenRejected.

    Not in the threads for queries: all of them could wait for the change log.
    """
    claims = tokens.verify(presented.issuer, presented.token, presented.audiences, may_fetch_keys=False)
    check_type(tokens.decode_unverified(presented.token)[0], claims)
    try:
        _store(presented.issuer, presented.token, claims, presented.address, presented.endpoint_slug)
    finally:
        connection.close()


def _store(issuer: Issuer, token: str, claims: Mapping[str, Any], address: str, endpoint_slug: str = "") -> None:
    """Store the digest of a verified token with the connection of its subject. Raises TokenRejected."""
    subject, expires_at = workloads.subject_of(claims), datetime.fromtimestamp(claims["exp"], UTC)
    if not subject:
        raise TokenRejected("The token has no subject (sub).")
    if expires_at.timestamp() <= time.time():
        raise TokenRejected("The token has expired.")
    # All scopes of the hub for a token without scopes: the rules say what it may use.
    scope = scopes.stated(issuer.tenant, claims)
    if not scope:
        raise TokenRejected("The hub and the tenant know none of its scopes (scope, scp).")
    try:
        rule = rules.find(issuer, claims)
        with recording_as(Actor(None, Via.SIGN_IN, address, issuer.name)), change_log_transaction():
            workloads.lock(issuer)
            row = workloads.connect(issuer, subject, rule)
            if not oauth_tokens.is_valid(row):
                raise TokenRejected("An admin ended the access of its subject.")
            oauth_tokens.store_signed(row, token, endpoint_slug, scope, expires_at)
            if not attempts.are_too_many_of_connection(row.pk):
                _record_event(
                    SignInStep.ISSUED, issuer, address, rules.description(issuer, rule), subject_connection=row
                )
    except rules.NoMatchingRule as problem:
        raise TokenRejected(str(problem).replace("your ", "its ")) from None
    except workloads.WorkloadRejected as problem:
        raise TokenRejected(str(problem)) from None
    except oauth_tokens.TooManyTokens:
        message = f"Its subject has {oauth_tokens.MAX_SIGNED} valid tokens. Use one of them until it ends."
        raise TokenRejected(message) from None
    except IntegrityError:
        # Another process was first.
        return


def _record_rejection(issuer: Issuer, reason: str, address: str) -> None:
    if not attempts.are_too_many_of_strangers(issuer.tenant_id, address):
        _record_event(SignInStep.REJECTED, issuer, address, f"{issuer.name}: {reason}")


def _record_event(
    step: SignInStep, issuer: Issuer, address: str, reason: str = "", subject_connection: Connection | None = None
) -> None:
    event = SignInEvent(step=step, reason=reason, tenant=issuer.tenant, remote_address=address)
    if subject_connection is not None:
        event.connection_id = subject_connection.pk
        event.client_id, event.client_name = subject_connection.client.client_id, subject_connection.client.name
    event.attempt = attempts.attempt_of(event)
    event.save(force_insert=True)


def _load(keys: Sequence[Key]) -> dict[Key, Issuer]:
    rows = Issuer.objects.filter(
        use=IssuerUse.DIRECT,
        is_active=True,
        tenant__is_active=True,
        tenant__slug__in={slug for slug, _ in keys},
        issuer__in={issuer for _, issuer in keys},
    )
    return {(row.tenant.slug, row.issuer): row for row in rows.select_related("tenant").defer("ciphertext")}


# Anybody can send tokens of any number of issuers: lookups within this time share a query.
_issuers: RefreshAheadCache[Key, Issuer] = RefreshAheadCache(
    _load, size_of=lambda row: len(orjson.dumps(row.rules)), gather_seconds=0.02
)
