"""Access tokens that a tenant's issuer signs and clients use as they are, without an exchange (RFC 9068; RFC 8725).

A token is verified when the hub sees it for the first time. From then on it is accepted by its digest until it ends,
as an access token of the hub is: no query and no verification belong to a call, and it ends within a second in all
processes when the issuer, its rules or its use change, or an admin ends the connection.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import orjson
from django.db import IntegrityError, connection

from tools_app.access.issuers import rules
from tools_app.access.oauth import attempts, resources, tenant_scopes, workloads
from tools_app.access.oauth import tokens as oauth_tokens
from tools_app.audit.changes.changes import Actor, change_log_transaction, recording_as
from tools_app.core.database import run_in_db_thread
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.core.runtime import Service
from tools_app.issuers import tokens
from tools_app.models import Connection, Issuer, IssuerUse, SignInEvent, SignInStep, Via
from tools_app.models.issuers import MAX_URL

T = TypeVar("T")

# Not those of other signed statements, such as identity assertions and logout tokens (RFC 8725, section 3.11).
TYPES: Final = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
MAX_TOKEN: Final = 16 * 1024
MAX_AUDIENCES: Final = 20
MAX_REASON: Final = 300
# A tenant's issuer that does not answer holds up one thread, and no other tenant's tokens.
THREADS: Final = 4
MAX_SECONDS: Final = 6.0
MAX_WAITING: Final = 48
MAX_WAITING_OF_TENANT: Final = 32
Key = tuple[str, str]


class NotAccepted(Exception):
    """A token gives no access; the message says why, and is "" if no issuer of the tenant is known by its name."""


class TooManyTokens(Exception):
    """Too many tokens are being verified at this moment."""


class Verifications:
    """The verifications in progress: one at a time for each tenant, in threads, because keys may have to be read."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="direct-tokens")
        self._waiting: Counter[UUID] = Counter()
        self._turns: dict[UUID, asyncio.Lock] = {}

    async def run(self, tenant_id: UUID, work: Callable[[], T]) -> T:
        """Return the result of `work`. Raises TooManyTokens, also if it takes longer than MAX_SECONDS."""
        if self._waiting[tenant_id] >= MAX_WAITING_OF_TENANT or self._waiting.total() >= MAX_WAITING:
            raise TooManyTokens
        self._waiting[tenant_id] += 1
        task = asyncio.create_task(self._run(tenant_id, work))
        # Work that takes too long keeps its turn until it ends.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(task), MAX_SECONDS)
        except TimeoutError:
            raise TooManyTokens from None

    async def _run(self, tenant_id: UUID, work: Callable[[], T]) -> T:
        try:
            async with self._turns.setdefault(tenant_id, asyncio.Lock()):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting[tenant_id] -= 1
            if not self._waiting[tenant_id]:
                del self._waiting[tenant_id], self._turns[tenant_id]


verifications = Service(Verifications)


async def accept(token: str, *, origin: str, slug: str | None, address: str) -> None:
    """Accept a token from now on until it ends, in all processes.

    `origin` is the hub's own, `slug` the tenant of the endpoint that was called, None for that of all tenants, and
    `address` the client's. Raises NotAccepted, TooManyTokens and the database's error.
    """
    try:
        header, claims = tokens.unverified(token, MAX_TOKEN)
    except tokens.InvalidToken as problem:
        raise NotAccepted(str(problem)) from None
    named = _named(claims.get("aud"), origin)
    slugs = {slug} if slug else set(named.values())
    stated = claims.get("iss")
    if len(slugs) != 1 or not isinstance(stated, str) or len(stated) > MAX_URL:
        raise NotAccepted("")
    (tenant_slug,) = slugs
    issuer = await _issuers.get((tenant_slug, stated))
    if issuer is None:
        raise NotAccepted("")
    audiences = [issuer.audience] if issuer.audience else [one for one, its in named.items() if its == tenant_slug]
    try:
        check_kind(header, claims)
        await verifications().run(issuer.tenant_id, lambda: _verify(issuer, token, audiences, address))
    except (tokens.InvalidToken, NotAccepted) as problem:
        reason = str(problem)[:MAX_REASON]
        await run_in_db_thread(_note_refusal, issuer, reason, address)
        raise NotAccepted(reason) from None


def forget_all() -> None:
    """Forget the issuers of all tenants (for tests, which empty the database while the hub runs)."""
    _issuers.forget_all()


def endpoints(issuer: Issuer, origin: str) -> list[str]:
    """Return the audiences of tokens of an issuer, which clients use as they are."""
    path = resources.path_of(issuer.tenant.slug)
    return [issuer.audience] if issuer.audience else [f"{origin}{path}", f"{origin}{path}/"]


def _named(audience: Any, origin: str) -> dict[str, str]:
    """Return those of the first audiences of a token that are endpoints of tenants, with their slugs."""
    found = {}
    for one in (audience if isinstance(audience, list) else [audience])[:MAX_AUDIENCES]:
        try:
            slug = resources.parse(one, origin).slug if isinstance(one, str) else None
        except resources.UnknownResource:
            continue
        if slug is not None:
            found[one] = slug
    return found


def check_kind(header: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
    """Raise NotAccepted for a signed statement of another kind, and for a token that is bound to a key."""
    if str(header.get("typ", "")).lower() not in TYPES:
        raise NotAccepted("This is no access token: its type (typ) is another one.")
    if "cnf" in claims:
        raise NotAccepted("The token is bound to a key of its client (cnf), which this hub cannot check.")


def _verify(issuer: Issuer, token: str, audiences: Sequence[str], address: str) -> None:
    """Verify and store a token. Raises InvalidToken and NotAccepted.

    Not in the threads for queries: all of them could wait for keys, or for the change log.
    """
    try:
        _store(issuer, token, tokens.verified(issuer, token, audiences), address)
    finally:
        connection.close()


def _store(issuer: Issuer, token: str, claims: Mapping[str, Any], address: str) -> None:
    """Store the digest of a verified token with the connection of its subject. Raises NotAccepted."""
    subject, stated, ends = claims.get("sub"), claims.get("scope"), datetime.fromtimestamp(claims["exp"], UTC)
    if not isinstance(subject, str) or not 0 < len(subject) <= workloads.MAX_SUBJECT or not subject.isprintable():
        raise NotAccepted("The token has no subject (sub).")
    if ends.timestamp() <= time.time():
        raise NotAccepted("The token has expired.")
    # All scopes of the hub, if it states none that the tenant knows: the rules say what it may use.
    scope = tenant_scopes.granted(issuer.tenant, stated if isinstance(stated, str) else None)
    try:
        rule = rules.find(issuer, claims)
        with recording_as(Actor(None, Via.SIGN_IN, address, issuer.name)), change_log_transaction():
            workloads.lock(issuer)
            row = workloads.connect(issuer, subject, rule)
            if not oauth_tokens.is_valid(row):
                raise NotAccepted("An admin ended the access of its subject.")
            oauth_tokens.store_access(row, token, scope, ends)
            _note(SignInStep.ISSUED, issuer, address, of_subject=row)
    except rules.NoRuleFits as problem:
        raise NotAccepted(str(problem).replace("your ", "its ")) from None
    except workloads.TooManyWorkloads:
        raise NotAccepted(f"The issuer has stated {workloads.MAX_WORKLOADS} subjects.") from None
    except workloads.IssuerChanged:
        raise NotAccepted("The issuer has just been changed. Try again.") from None
    except IntegrityError:
        # Another process was first.
        return


def _note_refusal(issuer: Issuer, reason: str, address: str) -> None:
    if not attempts.are_too_many_of_strangers():
        _note(SignInStep.REJECTED, issuer, address, f"{issuer.name}: {reason}")


def _note(
    step: SignInStep, issuer: Issuer, address: str, reason: str = "", of_subject: Connection | None = None
) -> None:
    event = SignInEvent(step=step, reason=reason, tenant=issuer.tenant, remote_address=address)
    if of_subject is not None:
        event.connection_id = of_subject.pk
        event.client_id, event.client_name = of_subject.client.client_id, of_subject.client.name
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
