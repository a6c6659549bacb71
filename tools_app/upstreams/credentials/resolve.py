"""The credential of a call, before a connection is taken; without one, the caller is told where to get it.

Calls with different credentials have different endpoints, and so share no connection and no session.
"""

import asyncio
from dataclasses import replace
from typing import Final

from tools_app.catalog.django_apps.people import person_of
from tools_app.catalog.kinds.upstream import Endpoint, SignIn
from tools_app.core.database import run_in_db_thread
from tools_app.models import CredentialKind, CredentialOwner, UpstreamCredential
from tools_app.tool_api.context import Caller, ToolContext
from tools_app.tool_api.elicitation import ElicitUrl, Refused
from tools_app.tool_api.results import CallCancelled, ToolError
from tools_app.upstreams.credentials import refresh, store
from tools_app.upstreams.credentials.discovery import parameter, valid_scopes
from tools_app.upstreams.credentials.store import Owner
from tools_app.upstreams.errors import Refused as RefusedByUpstream

# The name of the question in a client's answers.
QUESTION: Final = "mcphub-upstream-credential"
URL_CAPABILITY: Final = "elicitation.url"
# How long a call waits for a person who agreed to sign in, and for another process that refreshes the token.
WAIT_SECONDS: Final = 60.0
REFRESH_SECONDS: Final = 8.0
POLL_SECONDS: Final = 1.0
UNAUTHORIZED, FORBIDDEN = 401, 403


async def resolved(endpoint: Endpoint, context: ToolContext) -> Endpoint:
    """Return the endpoint with the credential of a call. Raises ToolError, and what a question to the client raises."""
    rule = endpoint.sign_in
    if rule is None:
        return endpoint
    owner = owner_of(rule, context.caller)
    found = await held(endpoint, owner)
    if found is None and owner.person_id is not None:
        # Who has left the tenant is not asked, and has no credential any more.
        await run_in_db_thread(person_of, context.caller)
    if found is None:
        await _ask(endpoint, owner, context)
        found = await held(endpoint, owner)
    if found is None:
        raise ToolError(missing(endpoint, owner))
    return found


async def held(endpoint: Endpoint, owner: Owner) -> Endpoint | None:
    """Return the endpoint with a stored credential, which is refreshed if it expired; None without one."""
    found = await run_in_db_thread(_with_credential, endpoint, owner)
    if not isinstance(found, UpstreamCredential):
        return found
    waited = 0.0
    await refresh.refresh(found.pk, at_once=found.failures == 0)
    while waited < REFRESH_SECONDS:
        again = await run_in_db_thread(_with_credential, endpoint, owner)
        if not isinstance(again, UpstreamCredential) or again.failures:
            return again if isinstance(again, Endpoint) else None
        await asyncio.sleep(POLL_SECONDS)
        waited += POLL_SECONDS
    return None


async def shared(endpoint: Endpoint) -> Endpoint | None:
    """Return the endpoint for what is done for all callers together: with the tenant's credential, if calls use that.

    None if there is no such credential.
    """
    if endpoint.sign_in is None:
        return endpoint
    return await held(endpoint, store.TENANT) if endpoint.sign_in.owner == CredentialOwner.TENANT else None


def listing(endpoint: Endpoint, person_id: int | None) -> Endpoint:
    """Return the endpoint with which to list what an upstream offers: with the tenant's credential, or the person's.

    Without either, the endpoint as it is: the upstream says then what it wants. Waits for no refresh.
    """
    if endpoint.sign_in is None:
        return endpoint
    owners = [store.TENANT]
    if person_id is not None and endpoint.sign_in.owner == CredentialOwner.PERSON:
        owners.append(Owner(person_id=person_id))
    for owner in owners:
        found = _with_credential(endpoint, owner)
        if isinstance(found, Endpoint):
            return found
    return endpoint


def owner_of(rule: SignIn, caller: Caller) -> Owner:
    """Return whose credential a call uses. Raises ToolError if the caller cannot have one."""
    if rule.owner == CredentialOwner.TENANT:
        return store.TENANT
    if rule.owner == CredentialOwner.KEY:
        if caller.key_id is None:
            raise ToolError("This upstream needs a credential for each API key. Connect with a key.")
        return Owner(key_id=caller.key_id)
    if caller.person_id is None:
        raise ToolError(
            "This upstream needs a credential of the person who calls it. Connect by signing in, or with a key that"
            " acts for you."
        )
    return Owner(person_id=caller.person_id)


def missing(endpoint: Endpoint, owner: Owner) -> str:
    """Say what a call lacks, and where to get it."""
    return f"The upstream '{endpoint.name}' needs {_wanted(endpoint, owner)}. {_go(endpoint, owner)}"


async def explained(endpoint: Endpoint, owner: Owner, problem: RefusedByUpstream) -> str:
    """Note that an upstream refused a credential, and say what to do; "" if it is about something else."""
    lacks_scope = parameter(problem.challenge, "error") == "insufficient_scope"
    if problem.status == UNAUTHORIZED:
        text = f"The upstream '{endpoint.name}' does not accept the credential any more."
        await run_in_db_thread(_note, endpoint, owner, "The upstream refused it (HTTP 401).", "")
    elif problem.status == FORBIDDEN and lacks_scope:
        scopes = valid_scopes(parameter(problem.challenge, "scope"))
        text = f"The upstream '{endpoint.name}' asks for more permissions for this: {scopes or 'unknown ones'}."
        await run_in_db_thread(_note, endpoint, owner, "A call needed more permissions.", scopes)
    else:
        return ""
    return f"{text} {_go(endpoint, owner)}"


async def refreshed(endpoint: Endpoint, owner: Owner, problem: RefusedByUpstream) -> Endpoint | None:
    """Return the endpoint with another token after the upstream refused one, if the server issues one."""
    if problem.status != UNAUTHORIZED or endpoint.sign_in is None or endpoint.sign_in.kind != CredentialKind.OAUTH:
        return None
    row = await run_in_db_thread(lambda: store.of_owner(endpoint.id, owner).first())
    if row is None or not await refresh.refresh(row.pk, at_once=True):
        return None
    found = await run_in_db_thread(_with_credential, endpoint, owner)
    return found if isinstance(found, Endpoint) else None


async def _ask(endpoint: Endpoint, owner: Owner, context: ToolContext) -> None:
    """Ask the client to open the page, and wait for the credential. Raises ToolError if none is given."""
    question = _question(endpoint, owner)
    if question is None or not context.supports(URL_CAPABILITY):
        raise ToolError(missing(endpoint, owner))
    try:
        answer = (await context.ask({QUESTION: question}))[QUESTION]
    except Refused:
        raise ToolError(missing(endpoint, owner)) from None
    context.forget_answers([QUESTION])
    if not answer.accepted:
        raise ToolError(missing(endpoint, owner))
    waited = 0.0
    while waited < WAIT_SECONDS and not isinstance(await run_in_db_thread(_with_credential, endpoint, owner), Endpoint):
        if context.cancelled:
            raise CallCancelled
        await asyncio.sleep(POLL_SECONDS)
        waited += POLL_SECONDS


def _question(endpoint: Endpoint, owner: Owner) -> ElicitUrl | None:
    """Return the question that leads to the page; None if the hub's address cannot be opened by a client."""
    try:
        return ElicitUrl(
            f"The upstream '{endpoint.name}' needs {_wanted(endpoint, owner)}.", store.link(endpoint.id, owner)
        )
    except ValueError:
        return None


def _wanted(endpoint: Endpoint, owner: Owner) -> str:
    whose = "of an admin" if owner == store.TENANT else "for this API key" if owner.key_id else "of yours"
    is_sign_in = endpoint.sign_in is not None and endpoint.sign_in.kind == CredentialKind.OAUTH
    return f"a sign-in {whose}" if is_sign_in else f"a credential {whose}"


def _go(endpoint: Endpoint, owner: Owner) -> str:
    place = store.link(endpoint.id, owner)
    where = place if "://" in place else f"{place} on this hub"
    is_sign_in = endpoint.sign_in is not None and endpoint.sign_in.kind == CredentialKind.OAUTH
    return f"{'Sign in' if is_sign_in else 'Enter it'} at {where}"


def _with_credential(endpoint: Endpoint, owner: Owner) -> Endpoint | UpstreamCredential | None:
    """Return the endpoint with the stored credential; the row if it must be refreshed first; None without one."""
    rule = endpoint.sign_in
    assert rule is not None
    row = store.of_owner(endpoint.id, owner).first()
    value = store.header_of(row, rule.kind, store.origin_of(endpoint.url))
    if not value:
        can_refresh = row is not None and row.kind == rule.kind and row.refresh_at is not None
        return row if can_refresh else None
    name = "Authorization" if rule.kind == CredentialKind.OAUTH else rule.header
    others = tuple(one for one in endpoint.headers if one[0].lower() != name.lower())
    secret = value.removeprefix("Bearer ")
    return replace(
        endpoint,
        headers=tuple(sorted((*others, (name, value)))),
        secrets=tuple(sorted({*endpoint.secrets, secret})),
        owner=str(owner),
    )


def _note(endpoint: Endpoint, owner: Owner, problem: str, scopes: str) -> None:
    """Note why a credential was refused, as far as that is news."""
    rows = store.of_owner(endpoint.id, owner).exclude(problem=problem, wanted_scopes=scopes)
    rows.update(problem=problem, wanted_scopes=scopes)
