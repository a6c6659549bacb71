"""Checks with issuers that people still belong to the company, twice an hour.

Each check is claimed in the database, so any number of processes may run this. Who is no longer known, or fits no rule
any more, loses the membership, and with it every connection and token, within a second.
"""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import Final
from uuid import UUID

from django.utils import timezone

from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.core.telemetry.logs import first_of
from tools_app.identity.issuers import provider
from tools_app.identity.people import people, rules, validity
from tools_app.models import Identity, SignInEvent, SignInStep, Via

log = logging.getLogger(__name__)

CHECK_INTERVAL: Final = timedelta(minutes=30)
BATCH: Final = 100
TICK_SECONDS: Final = 60.0
# The people of a tenant whose issuers are slow are asked about in later runs.
MAX_TENANT_SECONDS: Final = 20.0


def check(is_running: Callable[[], bool]) -> None:
    """Check the people whose turn it is, until there are none or `is_running` says to stop."""
    elapsed: Counter[UUID] = Counter()
    unchecked: list[str] = []
    while is_running():
        due = list(validity.check_due(timezone.now() - CHECK_INTERVAL)[:BATCH])
        for identity in due:
            claimed_at = timezone.now()
            if is_running() and people.claim_check(identity, claimed_at):
                started_at = monotonic()
                tenant_id = identity.issuer.tenant_id
                if problem := _check(identity, claimed_at, may_ask=elapsed[tenant_id] < MAX_TENANT_SECONDS):
                    unchecked.append(f"{identity.issuer.name}: {problem}")
                elapsed[tenant_id] += monotonic() - started_at  # type: ignore[assignment] # seconds, not a count
        if len(due) < BATCH:
            break
    if unchecked:
        log.warning("%d people could not be checked with their issuers: %s", len(unchecked), first_of(unchecked))


def _check(identity: Identity, claimed_at: datetime, *, may_ask: bool) -> str:
    """Check a person so that neither an answer nor the silence of one issuer holds up the people of others.

    Returns why that failed; "" if it did not.
    """
    try:
        with recording_as(Actor(None, Via.SIGN_IN, name=identity.issuer.name)):
            reason = _reason_to_end(identity, claimed_at, may_ask=may_ask)
            is_ended = bool(reason) and people.end(identity, claimed_at)
        if is_ended:
            tenant, name = identity.issuer.tenant, identity.person.get_username()
            SignInEvent.objects.create(step=SignInStep.LEFT, reason=reason, tenant=tenant, person_name=name)
    except provider.SignInFailed as problem:
        return str(problem)
    except Exception as problem:  # noqa: BLE001 - an issuer may answer anything
        return type(problem).__name__
    return ""


def _reason_to_end(identity: Identity, claimed_at: datetime, *, may_ask: bool) -> str:
    """Ask the issuer about a person, if there is time for it. Return why their access ends, or ""."""
    now = timezone.now()
    if people.is_overdue(identity, now):
        if identity.issuer.is_active and people.has_to_sign_in(identity, now):
            return _reason_to_sign_in(identity, now)
        return f"{identity.issuer.name} has not vouched for the person for {identity.issuer.recheck_hours} hours."
    if not people.has_role(identity):
        return "An admin removed the person from the tenant."
    token = people.refresh_token_of(identity) if may_ask else ""
    if not token:
        return ""
    try:
        result = provider.refresh(identity.issuer, token, {**identity.claims, "sub": identity.subject})
        people.confirm(identity, result.claims, result.refresh_token, claimed_at=claimed_at)
    except (provider.AccessWithdrawn, rules.NoMatchingRule) as problem:
        return str(problem)
    return ""


def _reason_to_sign_in(identity: Identity, now: datetime) -> str:
    minutes = identity.issuer.sign_in_minutes
    if minutes and identity.signed_in_at + timedelta(minutes=minutes) <= now:
        return f"{identity.issuer.name} asks for a sign-in every {minutes} minutes: sign in again."
    if identity.session_ends_at and identity.session_ends_at <= now:
        return f"The session at {identity.issuer.name} has ended: sign in again."
    return "A sign-in with SAML is valid for an hour: sign in again."
