"""People who come from an issuer: their account, their role, and its end.

An admin of a tenant chooses its issuer, which may state anything. So a person gets an account of their own, with a name
in the tenant's name, and never one that exists: neither a user name nor an e-mail that an issuer states proves anything
outside its tenant.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import orjson
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.access.issuers import rules
from tools_app.core import encryption
from tools_app.models import Identity, Issuer, Membership
from tools_app.models.issuers import MAX_SUBJECT

MAX_PEOPLE: Final = 10_000
MAX_NAME: Final = 60
MAX_EMAIL: Final = 254
MAX_REFRESH_TOKEN: Final = 8000
MAX_CLAIM_BYTES: Final = 32 * 1024
# Claims about the token, not the person.
PASSING: Final = frozenset({"aud", "exp", "iat", "nbf", "nonce", "at_hash", "c_hash", "jti", "auth_time", "sid"})
TRIES: Final = 20
_OTHERS: Final = re.compile(r"[^A-Za-z0-9.+_-]+")


class NotAccepted(Exception):
    """The person cannot come in; the message says why."""


def asserted(issuer: Issuer, claims: Mapping[str, Any]) -> Identity:
    """Return the identity of a verified assertion, which may say less of a person than an ID token does.

    What it does not say is taken from what the issuer said before. Access is not withdrawn by it. Raises NotAccepted.
    """
    subject = str(claims.get("sub", ""))[:MAX_SUBJECT]
    known = Identity.objects.filter(issuer=issuer, subject=subject, ended_at=None).first()
    return signed_in(issuer, {**(known.claims if known else {}), **claims}, may_end=False)


def signed_in(issuer: Issuer, claims: Mapping[str, Any], refresh_token: str = "", *, may_end: bool = True) -> Identity:
    """Return the identity of verified claims, with the account and the role that the rules give.

    Raises NotAccepted if no rule fits, or the account was disabled. Call it outside a transaction.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
        raise NotAccepted(f"{issuer.name} did not say who you are: its token has no subject (sub).")
    identity = Identity.objects.filter(issuer=issuer, subject=subject).select_related("person", "issuer").first()
    try:
        rules.find(issuer, claims)
    except rules.NoRuleFits as problem:
        if identity is not None and may_end:
            end(identity)
        raise NotAccepted(f"{problem} Ask one of its admins.") from None
    if identity is None:
        identity = _create(issuer, subject, claims)
    person = identity.person
    if not person.is_active:
        raise NotAccepted("This account is disabled. Ask an admin of the hub.")
    if person.is_superuser or Membership.objects.filter(user=person).exclude(tenant=issuer.tenant_id).exists():
        raise NotAccepted("This account has access that this company does not decide about. Ask an admin of the hub.")
    try:
        vouch(identity, claims, refresh_token)
    except rules.NoRuleFits as problem:
        raise NotAccepted(str(problem)) from None
    return identity


def end(identity: Identity) -> bool:
    """Withdraw the access that a person had by their issuer, in all processes within a second.

    Return False if it had ended.
    """
    with transaction.atomic():
        for member in Membership.objects.filter(user=identity.person_id, tenant=identity.issuer.tenant_id):
            member.delete()
        ended = Identity.objects.filter(pk=identity.pk, ended_at=None)
        return bool(ended.update(ended_at=timezone.now(), ciphertext=None))


def end_all(issuer: Issuer) -> None:
    """Withdraw the access of everybody who came from an issuer, before it is deleted."""
    for identity in Identity.objects.filter(issuer=issuer, ended_at=None).select_related("issuer"):
        end(identity)


def check_due(before: datetime) -> QuerySet[Identity]:
    """Return the identities with access that were last checked before a time, the oldest first."""
    rows = Identity.objects.filter(ended_at=None, checked_at__lt=before).order_by("checked_at")
    return rows.select_related("issuer__tenant", "person")


def claim_check(identity: Identity, now: datetime) -> bool:
    """Take over the check of an identity. Return False if another process did."""
    return bool(Identity.objects.filter(pk=identity.pk, checked_at=identity.checked_at).update(checked_at=now))


def is_overdue(identity: Identity, now: datetime) -> bool:
    """Whether the issuer has not vouched for a person for too long."""
    allowed = timedelta(hours=identity.issuer.recheck_hours)
    return not identity.issuer.is_active or identity.verified_at < now - allowed


def refresh_token_of(identity: Identity) -> str:
    """Return the issuer's refresh token; "" without one, or if it was sealed with another key."""
    if not identity.ciphertext:
        return ""
    try:
        return encryption.unseal(bytes(identity.ciphertext), _purpose(identity)).decode()
    except encryption.DecryptionError:
        return ""


def vouch(identity: Identity, claims: Mapping[str, Any] | None, refresh_token: str, *, is_check: bool = False) -> None:
    """Store that the issuer vouches for a person now, with these claims; None: with those that are known.

    `is_check`: the person did not come, so access that ended meanwhile stays ended. Raises NoRuleFits, also for an
    issuer that is turned off.
    """
    now = timezone.now()
    said = identity.claims if claims is None else claims
    if claims is not None:
        identity.claims = _stored_claims(claims)
    identity.verified_at = identity.checked_at = now
    identity.ended_at = None
    if refresh_token and len(refresh_token) <= MAX_REFRESH_TOKEN:
        identity.ciphertext = encryption.seal(refresh_token.encode(), _purpose(identity))
    is_stored = False
    while not is_stored:
        is_stored = _store(identity, said, is_check=is_check)


def _store(identity: Identity, claims: Mapping[str, Any], *, is_check: bool) -> bool:
    """Store an identity with the role that its issuer's rules give. Return False if the issuer changed meanwhile.

    Raises NoRuleFits. Whoever changes an issuer locks the change log, the issuer and its people in this order: so does
    this.
    """
    # The issuer as it is now: it may have changed while the provider was asked.
    issuer = Issuer.objects.select_related("tenant").filter(pk=identity.issuer_id).first()
    if issuer is None or not issuer.is_active:
        raise rules.NoRuleFits("The issuer is turned off.")
    identity.issuer = issuer
    role = rules.find(issuer, claims).role
    with transaction.atomic():
        _set_role(identity, role)
        rows = Issuer.objects.select_for_update(of=("self",), no_key=True).filter(pk=issuer.pk, is_active=True)
        is_unchanged = rows.values_list("rules", flat=True).first() == issuer.rules
        own = Identity.objects.select_for_update(of=("self",)).filter(pk=identity.pk, ended_at=None)
        has_ended = is_check and own.values_list("pk", flat=True).first() is None
        if has_ended or not is_unchanged:
            transaction.set_rollback(True)
        else:
            identity.save(update_fields=["claims", "verified_at", "checked_at", "ended_at", "ciphertext"])
    return has_ended or is_unchanged


def apply_rules(issuer: Issuer) -> None:
    """Give everybody who came from an issuer what its changed rules say, or withdraw their access."""
    for identity in Identity.objects.filter(issuer=issuer, ended_at=None).select_related("issuer", "person"):
        identity.issuer = issuer
        try:
            role = rules.find(issuer, identity.claims).role if issuer.is_active else ""
        except rules.NoRuleFits:
            role = ""
        if role and has_role(identity):
            _set_role(identity, role)
        else:
            end(identity)


def has_role(identity: Identity) -> bool:
    """Whether a person is a member of the tenant of their issuer: an admin may have removed them."""
    return Membership.objects.filter(user=identity.person_id, tenant=identity.issuer.tenant_id).exists()


def _set_role(identity: Identity, role: str) -> None:
    with transaction.atomic():
        tenant = identity.issuer.tenant_id
        member = Membership.objects.filter(user=identity.person, tenant=tenant).first()
        if member is None:
            Membership.objects.create(user=identity.person, tenant_id=tenant, role=role)
        elif member.role != role:
            member.role = role
            member.save(update_fields=["role"])


def _create(issuer: Issuer, subject: str, claims: Mapping[str, Any]) -> Identity:
    """Make an account for a person who comes for the first time."""
    if Identity.objects.filter(issuer=issuer).count() >= MAX_PEOPLE:
        raise NotAccepted(f"{issuer.name} has stated {MAX_PEOPLE} people. Ask an admin of the hub.")
    name = _name(claims)
    for number in range(TRIES):
        username = f"{name}{number + 1 if number else ''}@{issuer.tenant.slug}"
        try:
            with transaction.atomic():
                person = User.objects.create_user(username, _text(claims, "email", MAX_EMAIL))
                person.first_name = _text(claims, "given_name", MAX_NAME)
                person.last_name = _text(claims, "family_name", MAX_NAME)
                person.save(update_fields=["first_name", "last_name"])
                return Identity.objects.create(issuer=issuer, subject=subject, person=person)
        except IntegrityError:
            found = Identity.objects.filter(issuer=issuer, subject=subject).select_related("person", "issuer").first()
            if found is not None:
                return found
    raise NotAccepted("Too many people of this tenant have the same name. Ask an admin of the hub.")


def _stored_claims(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims that are stored; none if they are too large."""
    kept = {name: value for name, value in claims.items() if name not in PASSING}
    return kept if len(orjson.dumps(kept)) <= MAX_CLAIM_BYTES else {}


def _name(claims: Mapping[str, Any]) -> str:
    said = _text(claims, "preferred_username", MAX_EMAIL) or _text(claims, "email", MAX_EMAIL) or "person"
    return _OTHERS.sub("-", said.partition("@")[0])[:MAX_NAME].strip("-") or "person"


def _text(claims: Mapping[str, Any], name: str, most: int) -> str:
    value = claims.get(name)
    return "".join(filter(str.isprintable, value[:most])) if isinstance(value, str) else ""


def _purpose(identity: Identity) -> str:
    return f"identity:{identity.pk}"
