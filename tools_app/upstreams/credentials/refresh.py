"""Refreshing of tokens before they expire: each by one process, because servers rotate refresh tokens.

A refresh is claimed in the database. One that fails keeps the old token until that expires, and is repeated with a
growing delay, until somebody has to sign in again.
"""

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import DatabaseError
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from tools_app.catalog import authoring
from tools_app.catalog.kinds.upstream import runner as kind
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core import leases
from tools_app.core.database import run_in_db_thread, run_in_db_thread_unbounded
from tools_app.core.process.runtime import Service
from tools_app.core.process.thread_loops import LoopThread
from tools_app.models import CredentialKind, UpstreamCredential
from tools_app.upstreams.credentials import store
from tools_app.upstreams.credentials.discovery import SignInFailed, covers
from tools_app.upstreams.credentials.sign_in import GrantRevoked, exchange
from tools_app.upstreams.credentials.store import Tokens, is_usable

T = TypeVar("T")

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 5.0
# Longer than a token endpoint is waited for.
CLOSE_SECONDS: Final = 6.0
BATCH: Final = 500
TENANT_BATCH: Final = 20
MAX_CONCURRENT: Final = 4
# A process that claimed a refresh and ended leaves it to others after this time, longer than a request takes.
CLAIM_LIFETIME: Final = timedelta(seconds=30)
# Of attempts to store a new token while the database is away, within the claim.
STORE_DELAYS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
FIRST_DELAY: Final = timedelta(seconds=15)
MAX_DELAY: Final = timedelta(hours=1)
MAX_FAILURES: Final = 20
MAX_PROBLEM_LENGTH: Final = 500
SIGN_IN_AGAIN: Final = "Sign in again."


class Refresher:
    """Refreshes tokens on an event loop of its own, where a refresh goes on when the call that wanted it has ended."""

    def __init__(self) -> None:
        self._loop = LoopThread("upstream-tokens")
        self._batch: Future[None] | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the loop."""
        return self._loop.submit(work)

    def run(self) -> None:
        """Start the refreshes that are due, unless some are in progress."""
        if self._batch is None or self._batch.done():
            self._batch = self.submit(refresh_due())

    def stop(self) -> None:
        """Wait a little for the refreshes in progress: a new token that is not stored is lost."""

        async def finish_pending() -> None:
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

        with suppress(TimeoutError):
            self.submit(finish_pending()).result(CLOSE_SECONDS)
        self._loop.stop(CLOSE_SECONDS)


# The refresher of this process.
refresher = Service(Refresher, Refresher.stop)


async def refresh_due() -> None:
    """Refresh the tokens that are due, a few of each tenant at once: one whose server hangs holds up no other."""
    semaphores: dict[UUID, asyncio.Semaphore] = {}

    async def refresh_one(row_id: UUID, tenant_id: UUID) -> None:
        async with semaphores.setdefault(tenant_id, asyncio.Semaphore(MAX_CONCURRENT)):
            await refresh(row_id)

    try:
        rows = await run_in_db_thread(_due)
    except DatabaseError as error:
        log.warning("Tokens of upstreams are refreshed later: %s", type(error).__name__)
    else:
        await asyncio.gather(*(refresh_one(*row) for row in rows), return_exceptions=True)


async def refresh(row_id: UUID, *, rejected: UpstreamCredential | None = None) -> bool:
    """Refresh a token that is due, or at once instead of one that is of no use, unless that was replaced since.

    Returns whether this process did, and not another one. It is done to its end if the caller is cancelled: the old
    refresh token may be of no use any more.
    """
    return await asyncio.shield(asyncio.wrap_future(refresher().submit(_refresh(row_id, rejected))))


async def _refresh(row_id: UUID, rejected: UpstreamCredential | None) -> bool:
    claimed = await run_in_db_thread(_claim, row_id, rejected)
    if claimed is None:
        return False
    row, tokens, allowed = claimed
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
    try:
        issued, granted = await exchange(tokens, form, allowed)
    except SignInFailed as error:
        await run_in_db_thread(_record_failure, row, str(error), is_final=isinstance(error, GrantRevoked))
        return False
    # Unless somebody signed in meanwhile.
    store_tokens = partial(
        _unchanged(row).update,
        ciphertext=store.seal(row, vars(issued)),
        **store.expiry_fields(issued, granted),
        **({"scopes": granted.scopes} if granted.scopes else {}),
        claimed_until=None,
        failures=0,
        problem="",
        updated_at=timezone.now(),
    )
    for delay in STORE_DELAYS:
        try:
            await run_in_db_thread_unbounded(store_tokens)
        except DatabaseError as error:
            log.warning("A new token of the upstream %s is not stored yet: %s", row.upstream, type(error).__name__)
            await asyncio.sleep(delay)
        else:
            return True
    return False


def _due() -> list[tuple[UUID, UUID]]:
    """Return what is to be refreshed, by its tenant: of each tenant the first ones."""
    now = timezone.now()
    rows = UpstreamCredential.objects.filter(
        is_usable(),
        leases.free(now),
        kind=CredentialKind.OAUTH,
        refresh_at__lte=now,
        upstream__enabled=True,
        tenant__is_active=True,
    )
    of_tenant = Window(RowNumber(), partition_by="tenant_id", order_by="refresh_at")
    first = rows.annotate(number=of_tenant).filter(number__lte=TENANT_BATCH).order_by("refresh_at")
    return list(first.values_list("pk", "tenant_id")[:BATCH])


def _claim(
    row_id: UUID, rejected: UpstreamCredential | None
) -> tuple[UpstreamCredential, Tokens, tuple[str, ...]] | None:
    """Claim the refresh of a credential. None if another process did, or it cannot be refreshed."""
    row = UpstreamCredential.objects.filter(is_usable(), pk=row_id).select_related("upstream__tenant").first()
    now = timezone.now()
    if row is None or row.is_claimed or row.refresh_at is None:
        return None
    # Of calls that were refused together, the last ones come when the first has stored its new token.
    if row.refresh_at > now if rejected is None else row.updated_at != rejected.updated_at:
        return None
    if not leases.claim(_unchanged(row), CLAIM_LIFETIME):
        return None
    tokens = Tokens.read(store.unseal(row))
    url = row.upstream.url
    if row.origin != store.origin_of(url) or not covers(tokens.resource, url) or not tokens.refresh_token:
        _unchanged(row).update(refresh_at=None, claimed_until=None, problem=SIGN_IN_AGAIN)
        return None
    try:
        endpoint = kind.endpoint_of(row.upstream, row.upstream.tenant, authoring.decrypted_secrets(row.upstream.tenant))
    except ToolError as error:
        _record_failure(row, str(error), is_final=False)
        return None
    return row, tokens, endpoint.allowed_networks


def _record_failure(row: UpstreamCredential, error: str, *, is_final: bool) -> None:
    is_final = is_final or row.failures + 1 >= MAX_FAILURES
    delay = min(MAX_DELAY, FIRST_DELAY * 2 ** min(row.failures, 12))
    message = f"{error} {SIGN_IN_AGAIN}" if is_final else error
    _unchanged(row).update(
        failures=F("failures") + 1,
        problem=message[:MAX_PROBLEM_LENGTH],
        claimed_until=None,
        refresh_at=None if is_final else timezone.now() + delay,
    )


def _unchanged(row: UpstreamCredential):  # type: ignore[no-untyped-def]
    return UpstreamCredential.objects.filter(pk=row.pk, updated_at=row.updated_at)
