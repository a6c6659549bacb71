"""The credential of a call, before a connection is taken; without one, the caller is told where to get it.

Calls with different credentials have different endpoints, and so share no connection and no session.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final

from tools_app.catalog.kinds.django.people import person_of
from tools_app.catalog.kinds.upstream.runner import Endpoint, SignIn
from tools_app.catalog.tool_api.context import Caller, ToolContext
from tools_app.catalog.tool_api.elicitation import ElicitUrl, Refused
from tools_app.catalog.tool_api.results import CallCancelled, ToolError
from tools_app.core.database import run_in_db_thread
from tools_app.models import CredentialKind, CredentialOwner, UpstreamCredential
from tools_app.upstreams.credentials import refresh, store
from tools_app.upstreams.credentials.discovery import challenge_parameter, valid_scopes
from tools_app.upstreams.credentials.store import Owner
from tools_app.upstreams.errors import Refused as RefusedByUpstream

# The name of the question in a client's answers.
QUESTION: Final = "mcphub-upstream-credential"
# How long a call waits for a person who agreed to sign in, and for another process that refreshes the token.
WAIT_SECONDS: Final = 60.0
REFRESH_SECONDS: Final = 8.0
POLL_SECONDS: Final = 1.0
UNAUTHORIZED, FORBIDDEN = 401, 403


async def endpoint_for_call(endpoint: Endpoint, context: ToolContext) -> Endpoint:
    """Return the endpoint with the credential of a call. Raises ToolError, and what a question to the client raises."""
    rule = endpoint.sign_in
    if rule is None:
        return endpoint
    owner = owner_of(rule, context.caller)
    credentialed = await held(endpoint, owner)
    if credentialed is None:
        if owner.person_id is not None:
            # Who has left the tenant is not asked, and has no credential any more.
            await run_in_db_thread(person_of, context.caller)
        await _ask_client(endpoint, owner, context)
        credentialed = await held(endpoint, owner)
    if credentialed is None:
        raise ToolError(missing_message(endpoint, owner))
    return credentialed


async def held(endpoint: Endpoint, owner: Owner) -> Endpoint | None:
    """Return the endpoint with a stored credential, which is refreshed if it expired; None without one."""
    stored = await run_in_db_thread(_with_credential, endpoint, owner)
    if not isinstance(stored, UpstreamCredential):
        return stored
    return await _refresh(endpoint, owner, stored, at_once=stored.failures == 0)


async def endpoint_for_tenant(endpoint: Endpoint) -> Endpoint | None:
    """Return the endpoint for what is done for all callers together: with the tenant's credential, if calls use that.

    None if there is no such credential.
    """
    if endpoint.sign_in is None:
        return endpoint
    return await held(endpoint, store.TENANT) if endpoint.sign_in.owner == CredentialOwner.TENANT else None


def endpoint_for_listing(endpoint: Endpoint, person_id: int | None) -> Endpoint:
    """Return the endpoint with which to list what an upstream offers: with the tenant's credential, or the person's.

    Without either, the endpoint as it is: the upstream says then what it wants. Waits for no refresh.
    """
    if endpoint.sign_in is None:
        return endpoint
    owners = [store.TENANT]
    if person_id is not None and endpoint.sign_in.owner == CredentialOwner.PERSON:
        owners.append(Owner(person_id=person_id))
    for owner in owners:
        stored = _with_credential(endpoint, owner)
        if isinstance(stored, Endpoint):
            return stored
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


def missing_message(endpoint: Endpoint, owner: Owner) -> str:
    """Say what a call lacks, and where to get it."""
    return f"The upstream '{endpoint.name}' needs {_requirement(endpoint, owner)}. {_instruction(endpoint, owner)}"


async def explain_refusal(endpoint: Endpoint, owner: Owner, error: RefusedByUpstream) -> str:
    """Note that an upstream refused a credential, and say what to do; "" if it is about something else."""
    lacks_scope = challenge_parameter(error.challenge, "error") == "insufficient_scope"
    if error.status == UNAUTHORIZED:
        text, noted, scopes = "does not accept the credential any more", "The upstream refused it (HTTP 401).", ""
    elif error.status == FORBIDDEN and lacks_scope:
        noted, scopes = "A call needed more permissions.", valid_scopes(challenge_parameter(error.challenge, "scope"))
        text = f"asks for more permissions for this: {scopes or 'unknown ones'}"
    else:
        return ""
    rows = store.of_owner(endpoint.id, owner).exclude(problem=noted, wanted_scopes=scopes)
    await run_in_db_thread(partial(rows.update, problem=noted, wanted_scopes=scopes))
    return f"The upstream '{endpoint.name}' {text}. {_instruction(endpoint, owner)}"


async def endpoint_after_refusal(endpoint: Endpoint, owner: Owner, error: RefusedByUpstream) -> Endpoint | None:
    """Return the endpoint with another token after the upstream refused one, if the server issues one."""
    if error.status != UNAUTHORIZED or not _is_oauth(endpoint):
        return None
    newer, row = await run_in_db_thread(_newer, endpoint, owner)
    # It may have been refreshed while the request was on its way, or somebody signed in.
    return newer if newer is not None or row is None else await _refresh(endpoint, owner, row, at_once=True)


async def _refresh(endpoint: Endpoint, owner: Owner, row: UpstreamCredential, *, at_once: bool) -> Endpoint | None:
    """Refresh a token, or wait for the process that does. Returns the endpoint with the new one, if there is one."""
    await refresh.refresh(row.pk, rejected=row if at_once else None)
    waited = 0.0
    while True:
        newer, current = await run_in_db_thread(_newer, endpoint, owner)
        if newer is not None or current is None or not current.is_claimed or waited >= REFRESH_SECONDS:
            return newer
        await asyncio.sleep(POLL_SECONDS)
        waited += POLL_SECONDS


async def _ask_client(endpoint: Endpoint, owner: Owner, context: ToolContext) -> None:
    """Ask the client to open the page, and wait for the credential. Raises ToolError if none is given."""
    missing = ToolError(missing_message(endpoint, owner))
    if not context.supports(ElicitUrl.capability):
        raise missing
    message = f"The upstream '{endpoint.name}' needs {_requirement(endpoint, owner)}."
    try:
        question = ElicitUrl(message, store.credential_url(endpoint.id, owner))
    except ValueError:  # the hub's address cannot be opened by a client
        raise missing from None
    try:
        answer = (await context.ask({QUESTION: question}))[QUESTION]
    except Refused:
        raise missing from None
    context.forget_answers([QUESTION])
    if not answer.accepted:
        raise missing
    waited = 0.0
    while waited < WAIT_SECONDS and not isinstance(await run_in_db_thread(_with_credential, endpoint, owner), Endpoint):
        if context.cancelled:
            raise CallCancelled
        await asyncio.sleep(POLL_SECONDS)
        waited += POLL_SECONDS


def _requirement(endpoint: Endpoint, owner: Owner) -> str:
    owner_phrase = "of an admin" if owner == store.TENANT else "for this API key" if owner.key_id else "of yours"
    return f"{'a sign-in' if _is_oauth(endpoint) else 'a credential'} {owner_phrase}"


def _instruction(endpoint: Endpoint, owner: Owner) -> str:
    url = store.credential_url(endpoint.id, owner)
    location = url if "://" in url else f"{url} on this hub"
    return f"{'Sign in' if _is_oauth(endpoint) else 'Enter it'} at {location}"


def _is_oauth(endpoint: Endpoint) -> bool:
    return endpoint.sign_in is not None and endpoint.sign_in.kind == CredentialKind.OAUTH


def _with_credential(endpoint: Endpoint, owner: Owner) -> Endpoint | UpstreamCredential | None:
    """Return the endpoint with the stored credential; the row if it must be refreshed first; None without one."""
    assert endpoint.sign_in is not None
    row = store.of_owner(endpoint.id, owner).first()
    can_refresh = row is not None and row.kind == endpoint.sign_in.kind and row.refresh_at is not None
    return _apply(endpoint, owner, row) or (row if can_refresh else None)


def _newer(endpoint: Endpoint, owner: Owner) -> tuple[Endpoint | None, UpstreamCredential | None]:
    """Return the endpoint with the stored credential if that is not the one it has, and the stored one."""
    row = store.of_owner(endpoint.id, owner).first()
    stored = _apply(endpoint, owner, row)
    return (stored if stored is not None and stored.headers != endpoint.headers else None), row


def _apply(endpoint: Endpoint, owner: Owner, row: UpstreamCredential | None) -> Endpoint | None:
    """Return the endpoint with a credential; None if it cannot be sent there, or has expired."""
    rule = endpoint.sign_in
    assert rule is not None
    value = store.header_of(row, rule.kind, endpoint.url)
    if not value:
        return None
    name = "Authorization" if rule.kind == CredentialKind.OAUTH else rule.header
    others = tuple(header for header in endpoint.headers if header[0].lower() != name.lower())
    secret = value.removeprefix("Bearer ")
    return replace(
        endpoint,
        headers=tuple(sorted((*others, (name, value)))),
        secrets=tuple(sorted({*endpoint.secrets, secret})),
        owner=str(owner),
    )
