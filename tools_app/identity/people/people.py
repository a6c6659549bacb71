"""People who come from an issuer: their account, their role, and its end.

An admin of a tenant chooses its issuer, which may state anything. So a person gets an account of their own, with a name
in the tenant's name, and never one that exists: neither a user name nor an e-mail that an issuer states proves anything
outside its tenant.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.crypto import get_random_string

from tools_app.audit.changes import changes
from tools_app.core import encryption
from tools_app.identity.models.issuers import MAX_SUBJECT
from tools_app.identity.people import directory, rules, validity
from tools_app.identity.people.rules import Rule
from tools_app.models import DirectoryUser, Identity, Issuer, IssuerProtocol, Membership

MAX_PEOPLE: Final = 10_000
MAX_NAME: Final = 60
MAX_EMAIL: Final = 254
MAX_REFRESH_TOKEN: Final = 8000
MAX_CLAIM_BYTES: Final = 32 * 1024
# Claims about the token, not the person.
PASSING: Final = frozenset({"aud", "exp", "iat", "nbf", "nonce", "at_hash", "c_hash", "jti", "auth_time", "sid"})
TRIES: Final = 20
# After so many tries, a user name gets random characters in place of a number.
NUMBERED: Final = 5
RANDOM: Final = "abcdefghjkmnpqrstuvwxyz23456789"
BATCH: Final = 500
# What a check with the issuer changes, besides the refresh token if there is a new one.
CHECKED: Final = ("claims", "verified_at", "checked_at", "ended_at")
_OTHERS: Final = re.compile(r"[^A-Za-z0-9.+_-]+")


class SignInRejected(Exception):
    """The person cannot come in; the message says why."""


def sign_in(
    issuer: Issuer,
    claims: Mapping[str, Any],
    refresh_token: str = "",
    *,
    session_end: datetime | None = None,
    is_assertion: bool = False,
) -> Identity:
    """Return the identity of verified claims, with the account and the role that the rules give.

    `session_end`: when the person's session ends at the issuer, if it says so. `is_assertion`: the claims are those of
    an assertion, which may say less of a person than an ID token does. What it does not say is taken from what the
    issuer said before, and access is not withdrawn by it.
    Raises SignInRejected if no rule fits, or the account was disabled. Call it outside a transaction.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
        raise SignInRejected(f"{issuer.name} did not say who you are: its token has no subject (sub).")
    identity = Identity.objects.filter(issuer=issuer, subject=subject).select_related("person", "issuer").first()
    known = _known_claims(identity) if identity is not None and is_assertion else {}
    all_claims = {**known, **claims}
    try:
        identity, entry = directory.joined(issuer, subject, all_claims, identity)
        rule_of(issuer, entry, all_claims)
    except (rules.NoMatchingRule, directory.AccountConflict) as problem:
        if identity is not None and not is_assertion:
            end(identity)
        raise SignInRejected(f"{problem} Ask one of its admins.") from None
    if identity is None:
        identity = create(issuer, subject, all_claims)
    person = identity.person
    if not person.is_active:
        raise SignInRejected("This account is disabled. Ask an admin of the hub.")
    if not belongs(identity):
        raise SignInRejected(
            "This account has access that this company does not decide about. Ask an admin of the hub."
        )
    # As it was when it stated the claims.
    identity.issuer = issuer
    try:
        identity.signed_in_at, identity.session_ends_at = timezone.now(), session_end
        confirm(identity, claims, refresh_token, is_assertion=is_assertion)
    except (rules.NoMatchingRule, directory.AccountConflict) as problem:
        raise SignInRejected(str(problem)) from None
    return identity


def rule_used(identity: Identity, claims: Mapping[str, Any]) -> str:
    """Return which rule gave a person who came with these claims their role; "" if none gives one any more."""
    try:
        return rules.description(identity.issuer, rule_of(identity.issuer, _entry(identity, claims), claims))
    except rules.NoMatchingRule:
        return ""


def rule_of(
    issuer: Issuer,
    entry: DirectoryUser | None,
    claims: Mapping[str, Any],
    known_ids: Mapping[str, UUID] | None = None,
) -> Rule:
    """Return the rule that gives a person their role, by claims and by what the directory says of them.

    `known_ids`: see `directory.claims_of`. Raises NoMatchingRule, also for a person whom the directory does not know or
    has deactivated.
    """
    if entry is None:
        if issuer.directory_only:
            raise rules.NoMatchingRule(f"The directory of {issuer.tenant.name} has not provisioned this account.")
        return rules.find(issuer, claims)
    if not entry.active:
        raise rules.NoMatchingRule(f"The directory of {issuer.tenant.name} has deactivated this account.")
    return rules.find(issuer, {**claims, **directory.claims_of(entry, known_ids)})


def belongs(identity: Identity) -> bool:
    """Whether an account is its issuer's alone: no superuser's, and without access to other tenants."""
    elsewhere = Membership.objects.filter(user=identity.person_id).exclude(tenant=identity.issuer.tenant_id)
    return not (identity.person.is_superuser or elsewhere.exists())


def end(identity: Identity, claimed_at: datetime | None = None) -> bool:
    """Withdraw the access that a person had by their issuer, in all processes within a second.

    `claimed_at`: when the check that decided so was claimed; None for other reasons. Return False if access had ended,
    or if the person has signed in since the check was claimed: nothing is withdrawn then.
    """
    with transaction.atomic():
        for member in _members(identity).select_related("user", "tenant"):
            member.delete()
        current = Identity.objects.filter(pk=identity.pk, ended_at=None)
        if claimed_at is not None:
            current = current.filter(checked_at=claimed_at)
        is_ended = bool(current.update(ended_at=timezone.now(), ciphertext=None))
        if claimed_at is not None and not is_ended:
            transaction.set_rollback(True)
    return is_ended


def end_all(issuer: Issuer) -> None:
    """Withdraw the access of everybody who came from an issuer, which is deleted or becomes another one.

    No person is known by it any more. The accounts that were its alone are disabled: it stated their e-mails, which
    are not proved.
    """
    for identity in Identity.objects.filter(issuer=issuer, ended_at=None).select_related("issuer"):
        end(identity)
    people = User.objects.filter(identity__issuer=issuer, is_superuser=False)
    people.filter(~Exists(Membership.objects.filter(user=OuterRef("pk")))).update(is_active=False)
    Identity.objects.filter(issuer=issuer).delete()


def claim_check(identity: Identity, now: datetime) -> bool:
    """Take over the check of an identity. Return False if another process did."""
    return bool(Identity.objects.filter(pk=identity.pk, checked_at=identity.checked_at).update(checked_at=now))


def is_overdue(identity: Identity, now: datetime) -> bool:
    """Whether the issuer has not confirmed for too long that a person belongs to it."""
    if not identity.issuer.is_active:
        return True
    if has_to_sign_in(identity, now):
        return True
    allowed = timedelta(hours=identity.issuer.recheck_hours)
    is_saml = identity.issuer.protocol == IssuerProtocol.SAML
    return not is_saml and identity.verified_at <= now - allowed and not validity.by_directory(identity).exists()


def has_to_sign_in(identity: Identity, now: datetime) -> bool:
    """Whether a person has access only after the next sign-in."""
    end = validity.end_of(identity)
    return end is not None and end <= now


def refresh_token_of(identity: Identity) -> str:
    """Return the issuer's refresh token; "" without one, or if it was sealed with another key."""
    if not identity.ciphertext:
        return ""
    try:
        return unseal(identity, identity.issuer)
    except encryption.DecryptionError:
        return ""


def confirm(
    identity: Identity,
    claims: Mapping[str, Any] | None,
    refresh_token: str,
    *,
    claimed_at: datetime | None = None,
    is_assertion: bool = False,
) -> None:
    """Store that the issuer confirms a person now, with these claims; None: with those that are known.

    `claimed_at`: when the check with the issuer was claimed; None for a sign-in. Nothing of a check is stored if access
    has ended or the person has signed in since then: what the issuer said to the check may be older. `is_assertion`:
    see `sign_in`. Raises NoMatchingRule, also for an issuer that is turned off, and for a sign-in
    AccountConflict.
    """
    current_claims = identity.claims if claims is None else claims
    identity.verified_at = identity.checked_at = timezone.now()
    identity.ended_at = None
    fields = [*CHECKED] if claimed_at else [*CHECKED, "signed_in_at", "session_ends_at"]
    if refresh_token and len(refresh_token) <= MAX_REFRESH_TOKEN:
        identity.ciphertext = encryption.seal(refresh_token.encode(), sealed_for(identity, identity.issuer))
        fields.append("ciphertext")
    is_stored = False
    while not is_stored:
        is_stored = _store(identity, current_claims, fields, claimed_at=claimed_at, is_assertion=is_assertion)


def _store(
    identity: Identity,
    claims: Mapping[str, Any],
    fields: Iterable[str],
    *,
    claimed_at: datetime | None,
    is_assertion: bool,
) -> bool:
    """Store fields of an identity with the role that its issuer's rules give, or nothing for a check that is outdated.

    Return False if the issuer, the directory, the role or what an assertion leaves out changed meanwhile. Raises
    NoMatchingRule, AccountConflict. A change of an issuer locks the change log, the issuer and its people in this
    order: so does this.
    """
    # The issuer as it is now: it may have changed while the provider was asked.
    issuer = Issuer.objects.select_related("tenant").filter(pk=identity.issuer_id).first()
    if issuer is None or not issuer.is_active:
        raise rules.NoMatchingRule("The issuer is turned off.")
    if issuer.issuer != identity.issuer.issuer:
        raise rules.NoMatchingRule("The issuer has just been changed. Try again.")
    identity.issuer = issuer
    known = _known_claims(identity) if is_assertion else {}
    claims = {**known, **claims}
    is_check = claimed_at is not None
    entry = _entry(identity, claims) if is_check else directory.joined(issuer, identity.subject, claims, identity)[1]
    role = rule_of(issuer, entry, claims).role
    with transaction.atomic():
        # Before the identity is written: a change of an issuer or its directory locks the change log first, too.
        _set_role(identity, role)
        rows = Issuer.objects.select_for_update(of=("self",), no_key=True).filter(pk=issuer.pk, is_active=True)
        now = rows.values("issuer", "rules", "directory_claim", "directory_only").first()
        is_unchanged = now is not None and all(getattr(issuer, name) == value for name, value in now.items())
        # A new role waited for the change log, and the directory may have changed the person meanwhile.
        entry = _entry(identity, claims)
        is_unchanged = is_unchanged and rule_of(issuer, entry, claims).role == role
        # It may have provisioned the person with another account: a sign-in joins them first, so that the directory
        # decides about the account in use.
        is_unchanged = is_unchanged and (is_check or entry is None or entry.identity.pk == identity.pk)
        current = Identity.objects.select_for_update(of=("self",)).filter(pk=identity.pk)
        state = current.values("ended_at", "checked_at").first()
        if state is None and not is_check:
            raise rules.NoMatchingRule("This account has just been deleted. Sign in again.")
        is_outdated = is_check and state != {"ended_at": None, "checked_at": claimed_at}
        # Another check or sign-in may have changed the role before this locked the identity.
        is_unchanged = is_unchanged and _members(identity).filter(role=role).exists()
        # What the issuer said before does not count for an assertion if access has ended meanwhile.
        is_unchanged = is_unchanged and (not is_assertion or _known_claims(identity) == known)
        if is_outdated or not is_unchanged:
            transaction.set_rollback(True)
        else:
            stored = {name: value for name, value in claims.items() if name not in PASSING}
            identity.claims = stored if len(orjson.dumps(stored)) <= MAX_CLAIM_BYTES else {}
            identity.save(update_fields=fields)
    return is_outdated or is_unchanged


def _known_claims(identity: Identity) -> dict[str, Any]:
    """Return what the issuer last said of a person, as it is stored now; nothing if access has ended."""
    rows = Identity.objects.filter(pk=identity.pk, ended_at=None)
    return rows.values_list("claims", flat=True).first() or {}


def _entry(identity: Identity, claims: Mapping[str, Any]) -> DirectoryUser | None:
    """Return what the directory says of a person: by the external ID, which may have come later than their account."""
    found = directory.entry_for(identity.issuer, claims)
    return directory.entry_of(identity) if found is None else found


def apply_rules(issuer: Issuer, identities: Iterable[Any] | None = None) -> list[Identity]:
    """Give everybody who came from an issuer what its changed rules or its directory say, or withdraw their access.

    `identities`: the keys of those whom a change concerns; None for all. Who has no access gets it only from the
    directory: others come to sign in. Return those whose access was withdrawn.
    """
    rows = Identity.objects.filter(Q(ended_at=None) | Q(directory_user__active=True), issuer=issuer)
    keys = list(rows.values_list("pk", flat=True) if identities is None else identities)
    ended: list[Identity] = []
    for start in range(0, len(keys), BATCH):
        some = rows.filter(pk__in=keys[start : start + BATCH]).select_related("person", "directory_user")
        ended += _apply(issuer, list(some.prefetch_related("directory_user__groups")))
    return ended


def _apply(issuer: Issuer, identities: list[Identity]) -> list[Identity]:
    """Apply the rules to some people, in a number of queries that depends on how many of them change."""
    members = Membership.objects.filter(user__in=[identity.person_id for identity in identities])
    held: dict[int, dict[Any, str]] = {}
    for person, tenant, role in members.values_list("user", "tenant", "role"):
        held.setdefault(person, {})[tenant] = role
    known_ids = directory.external_ids(issuer.pk)
    ended = []
    for identity in identities:
        identity.issuer = issuer
        roles, entry = held.get(identity.person_id, {}), getattr(identity, "directory_user", None)
        has_access = issuer.tenant_id in roles
        role = ""
        # Without access and unknown to the directory, an admin has removed the person.
        if issuer.is_active and (entry is not None or has_access):
            with suppress(rules.NoMatchingRule):
                role = rule_of(issuer, entry, identity.claims, known_ids).role
        if entry is not None and (not identity.person.is_active or identity.person.is_superuser):
            role = ""
        if role and not has_access and len(roles) > 0:
            role = ""  # the account has access elsewhere, which this issuer does not decide about
        if not role:
            if (has_access or identity.ended_at is None) and end(identity):
                ended.append(identity)
            continue
        if roles.get(issuer.tenant_id) != role:
            _set_role(identity, role)
        if identity.ended_at is not None:
            now = timezone.now()
            Identity.objects.filter(pk=identity.pk).update(ended_at=None, verified_at=now, checked_at=now)
    return ended


def has_role(identity: Identity) -> bool:
    """Whether a person is a member of the tenant of their issuer: an admin may have removed them."""
    return _members(identity).exists()


def _members(identity: Identity) -> QuerySet[Membership]:
    return Membership.objects.filter(user=identity.person_id, tenant=identity.issuer.tenant_id)


def _set_role(identity: Identity, role: str) -> None:
    if _members(identity).filter(role=role).exists():
        return
    with transaction.atomic():
        # Locks the change log before the row is read: another sign-in may be creating it, or a check deleting it.
        changes.lock_change_log()
        member = _members(identity).first()
        if member is None:
            Membership.objects.create(user=identity.person, tenant=identity.issuer.tenant, role=role)
        elif member.role != role:
            member.role = role
            member.save(update_fields=["role"])


def create(issuer: Issuer, subject: str, claims: Mapping[str, Any]) -> Identity:
    """Make an account for a person who comes for the first time, or whom the directory provisions (subject "").

    Raises SignInRejected.
    """
    if Identity.objects.filter(issuer=issuer).count() >= MAX_PEOPLE:
        raise SignInRejected(f"{issuer.name} has stated {MAX_PEOPLE} people. Ask an admin of the hub.")
    candidates = (_text(claims, name, MAX_EMAIL).partition("@")[0] for name in ("preferred_username", "email"))
    name = next(filter(None, (_OTHERS.sub("-", text)[:MAX_NAME].strip("-") for text in candidates)), "person")
    for number in range(TRIES):
        suffix = f"-{get_random_string(8, RANDOM)}" if number >= NUMBERED else str(number + 1) if number else ""
        username = f"{name}{suffix}@{issuer.tenant.slug}"
        try:
            with transaction.atomic():
                person = User.objects.create_user(username, _text(claims, "email", MAX_EMAIL))
                describe(person, claims)
                return Identity.objects.create(issuer=issuer, subject=subject, person=person)
        except IntegrityError:
            found = Identity.objects.filter(issuer=issuer, subject=subject).select_related("person", "issuer").first()
            if found is not None and subject:
                return found
    raise SignInRejected("Too many people of this tenant have the same name. Ask an admin of the hub.")


def describe(person: User, claims: Mapping[str, Any]) -> None:
    """Store the name and the e-mail of an account as claims say them."""
    fields = {
        "first_name": _text(claims, "given_name", MAX_NAME),
        "last_name": _text(claims, "family_name", MAX_NAME),
        "email": _text(claims, "email", MAX_EMAIL),
    }
    changed = [name for name, value in fields.items() if getattr(person, name) != value]
    if changed:
        for name in changed:
            setattr(person, name, fields[name])
        person.save(update_fields=changed)


def _text(claims: Mapping[str, Any], name: str, most: int) -> str:
    value = claims.get(name)
    return "".join(filter(str.isprintable, value[:most])) if isinstance(value, str) else ""


def sealed_for(row: Issuer | Identity, issuer: Issuer) -> str:
    """Return the purpose for which the client secret of an issuer or the refresh token of a person is sealed.

    The URL is part of it: nothing is sent to another provider.
    """
    return f"{'issuer' if isinstance(row, Issuer) else 'identity'}:{row.pk}:{issuer.issuer}"


def unseal(row: Issuer | Identity, issuer: Issuer) -> str:
    """Return the client secret of an issuer or the refresh token of a person. Raises DecryptionError."""
    return encryption.unseal(bytes(row.ciphertext or b""), sealed_for(row, issuer)).decode()
