"""Refreshing of tokens before they expire: each by one process, because servers rotate refresh tokens.

A refresh is claimed in the database. One that fails keeps the old token until that expires, and is repeated with a
growing delay, until somebody has to sign in again.
"""

import asyncio
import logging
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import connection
from django.db.models import F
from django.utils import timezone

from tools_app.catalog import authoring
from tools_app.catalog.kinds import upstream as kind
from tools_app.core.database import run_in_db_thread
from tools_app.core.thread_loops import thread_loops
from tools_app.models import CredentialKind, UpstreamCredential
from tools_app.tool_api.results import ToolError
from tools_app.upstreams.credentials import store
from tools_app.upstreams.credentials.discovery import SignInFailed
from tools_app.upstreams.credentials.owners import is_usable
from tools_app.upstreams.credentials.store import Granted, Tokens
from tools_app.upstreams.credentials.tokens import Withdrawn, exchanged

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 2.0
BATCH: Final = 50
AT_ONCE: Final = 8
# A process that claimed a refresh and ended leaves it to others after this time, longer than a request takes.
CLAIM: Final = timedelta(seconds=30)
FIRST_DELAY: Final = timedelta(seconds=15)
MAX_DELAY: Final = timedelta(hours=1)
MAX_FAILURES: Final = 20
MAX_PROBLEM_LENGTH: Final = 500
AGAIN: Final = "Sign in again."


class Refresher:
    """Refreshes what is due in a thread of its own: a server that does not answer holds up nothing else."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Start the refreshes that are due, unless some are in progress."""
        if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._work, name="upstream-tokens", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait a little for the refreshes in progress."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        try:
            if UpstreamCredential.objects.filter(refresh_at__lte=timezone.now()).exists():
                thread_loops().run(refresh_due())
        except Exception as problem:  # noqa: BLE001 - the database may be away for a while
            log.warning("Tokens of upstreams are refreshed later: %s", type(problem).__name__)
        finally:
            with suppress(Exception):
                connection.close()


async def refresh_due() -> None:
    """Refresh the tokens that are due, a few at once."""
    room = asyncio.Semaphore(AT_ONCE)

    async def work(row_id: UUID) -> None:
        async with room:
            await refresh(row_id)

    await asyncio.gather(*map(work, await run_in_db_thread(_due)), return_exceptions=True)


async def refresh(row_id: UUID, *, at_once: bool = False) -> bool:
    """Refresh a token that is due, or `at_once`. Returns whether this process did, and not another one."""
    claimed = await run_in_db_thread(_claimed, row_id, at_once=at_once)
    if claimed is None:
        return False
    row, tokens, allowed = claimed
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
    try:
        issued, granted = await exchanged(tokens, form, allowed)
    except SignInFailed as problem:
        await run_in_db_thread(_note_failure, row, str(problem), is_final=isinstance(problem, Withdrawn))
        return False
    # Not within a time: the old refresh token may be of no use any more.
    await run_in_db_thread(_store, row, issued, granted)
    return True


def _due() -> list[UUID]:
    rows = UpstreamCredential.objects.filter(is_usable(), kind=CredentialKind.OAUTH, refresh_at__lte=timezone.now())
    return list(rows.order_by("refresh_at").values_list("pk", flat=True)[:BATCH])


def _claimed(row_id: UUID, *, at_once: bool) -> tuple[UpstreamCredential, Tokens, tuple[str, ...]] | None:
    """Claim the refresh of a credential. None if another process did, or it cannot be refreshed."""
    row = UpstreamCredential.objects.filter(is_usable(), pk=row_id).select_related("upstream__tenant").first()
    now = timezone.now()
    if row is None or row.refresh_at is None or (not at_once and row.refresh_at > now):
        return None
    same = UpstreamCredential.objects.filter(pk=row_id, refresh_at=row.refresh_at, updated_at=row.updated_at)
    if not same.update(refresh_at=now + CLAIM):
        return None
    tokens = Tokens.read(store.opened(row))
    if row.origin != store.origin_of(row.upstream.url) or not tokens.refresh_token:
        UpstreamCredential.objects.filter(pk=row_id).update(refresh_at=None, problem=AGAIN)
        return None
    try:
        endpoint = kind.endpoint_of(row.upstream, row.upstream.tenant, authoring.opened_secrets(row.upstream.tenant))
    except ToolError:
        return None
    return row, tokens, endpoint.allowed_networks


def _store(row: UpstreamCredential, tokens: Tokens, granted: Granted) -> None:
    """Store new tokens, unless somebody signed in meanwhile."""
    _unchanged(row).update(
        ciphertext=store.sealed(row, vars(tokens)),
        **store.times(tokens, granted),
        **({"scopes": granted.scopes} if granted.scopes else {}),
        failures=0,
        problem="",
        updated_at=timezone.now(),
    )


def _note_failure(row: UpstreamCredential, problem: str, *, is_final: bool) -> None:
    is_final = is_final or row.failures + 1 >= MAX_FAILURES
    delay = min(MAX_DELAY, FIRST_DELAY * 2 ** min(row.failures, 12))
    told = f"{problem} {AGAIN}" if is_final else problem
    _unchanged(row).update(
        failures=F("failures") + 1,
        problem=told[:MAX_PROBLEM_LENGTH],
        refresh_at=None if is_final else timezone.now() + delay,
    )


def _unchanged(row: UpstreamCredential):  # type: ignore[no-untyped-def]
    return UpstreamCredential.objects.filter(pk=row.pk, updated_at=row.updated_at)
