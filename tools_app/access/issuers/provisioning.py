"""People and groups as a company's directory maintains them (RFC 7644), and what follows for their access.

Every function is called in a transaction of the change log (`audit.changes`), and applies the issuer's rules at once:
who is deactivated, deleted or in no group that a rule names loses access within a second in all processes. Nothing here
reaches an account that is not this issuer's.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import CharField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from tools_app.access.issuers import directory, people
from tools_app.models import DirectoryGroup, DirectoryUser, Identity, Issuer, SignInEvent, SignInStep
from tools_app.models.directory import MAX_VALUE

MAX_GROUPS: Final = 250
MAX_MEMBERS: Final = 2000
LEFT: Final = "{} does not give the person access any more: deactivated, deleted, or in no group that a rule names."


class NotUnique(Exception):
    """Another resource of the directory has this value; the message says which value."""


class TooMany(Exception):
    """The directory has as many resources of this kind as it may; the message says how many."""


class UnknownMember(Exception):
    """A group would have a member that is no user of the directory."""


@dataclass(frozen=True)
class UserValues:
    """What the directory says of a person. `others` are further attributes as JSON, by their SCIM names."""

    user_name: str
    external_id: str = ""
    active: bool = True
    others: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupValues:
    """What the directory says of a group. `members` are IDs of users; None: as they are."""

    display_name: str
    external_id: str = ""
    members: Collection[UUID] | None = None


def key_of(text: str) -> str:
    """Return a text as it is compared without case."""
    return text.casefold()[:MAX_VALUE]


# --- Users ----------------------------------------------------------------------------------------------------


def create_user(issuer: Issuer, said: UserValues) -> DirectoryUser:
    """Store a person, with an account unless they signed in before. Raises NotUnique, TooMany."""
    row = DirectoryUser(issuer=issuer)
    _check_user(row, said)
    _fill_user(row, said)
    found = _known(issuer, said.external_id)
    if found is None:
        try:
            found = people.create(issuer, "", _claims_of_new(row))
        except people.NotAccepted as problem:
            raise TooMany(str(problem)) from problem
        # Access begins with a rule that fits, below.
        Identity.objects.filter(pk=found.pk).update(ended_at=timezone.now())
    row.identity = found
    row.save(force_insert=True)
    _apply(issuer, [found.pk])
    return row


def save_user(row: DirectoryUser, said: UserValues) -> None:
    """Store what the directory now says of a person. Raises NotUnique."""
    _check_user(row, said)
    _fill_user(row, said)
    row.changed_at = timezone.now()
    row.save()
    identity = row.identity
    if people.belongs(identity):
        people.describe(identity.person, directory.claims_of(row))
    _apply(row.issuer, [identity.pk])


def delete_user(row: DirectoryUser) -> None:
    """Forget a person and withdraw their access; delete their account, too, if they never signed in."""
    issuer, identity = row.issuer, row.identity
    row.delete()
    if people.end(identity):
        _note_left(issuer, [identity])
    directory.discard(identity)


def _check_user(row: DirectoryUser, said: UserValues) -> None:
    others = DirectoryUser.objects.filter(issuer=row.issuer).exclude(pk=row.pk)
    if others.filter(user_name_key=key_of(said.user_name)).exists():
        raise NotUnique("Another user has this userName.")
    if said.external_id and others.filter(external_id=said.external_id).exists():
        raise NotUnique("Another user has this externalId.")


def _fill_user(row: DirectoryUser, said: UserValues) -> None:
    row.user_name, row.user_name_key = said.user_name, key_of(said.user_name)
    row.external_id, row.active, row.resource = said.external_id, said.active, said.others
    lines = [line for email in said.others.get("emails") or [] for line in _lines(email)]
    row.emails_key = "\n{}\n".format("\n".join(lines)) if lines else ""


def _lines(email: Mapping[str, Any]) -> Iterator[str]:
    """Return an e-mail as it is searched for: alone, and with its type."""
    value = key_of(str(email.get("value") or ""))
    if value:
        yield value
        yield key_of(f"{email.get('type') or ''} {value}")


def _known(issuer: Issuer, external_id: str) -> Identity | None:
    """Return the identity of somebody who signed in before they were provisioned."""
    rows = Identity.objects.filter(issuer=issuer, directory_user=None).exclude(subject="")
    if not external_id:
        return None
    if issuer.directory_claim == "sub":
        rows = rows.filter(subject=external_id)
    else:
        said = Cast(KeyTextTransform(issuer.directory_claim, "claims"), CharField())
        rows = rows.alias(said=said).filter(said=external_id)
    return rows.select_related("person", "issuer").first()


def _claims_of_new(row: DirectoryUser) -> dict[str, Any]:
    name = row.resource.get("name") or {}
    return {
        "preferred_username": row.user_name,
        "email": directory.primary_email(row.resource),
        "given_name": name.get("givenName"),
        "family_name": name.get("familyName"),
    }


# --- Groups ---------------------------------------------------------------------------------------------------


def create_group(issuer: Issuer, said: GroupValues) -> DirectoryGroup:
    """Store a group. Raises NotUnique, TooMany, UnknownMember."""
    if DirectoryGroup.objects.filter(issuer=issuer).count() >= MAX_GROUPS:
        raise TooMany(f"A directory has at most {MAX_GROUPS} groups. Assign fewer groups to this application.")
    row = DirectoryGroup(issuer=issuer)
    _fill_group(row, said)
    row.save(force_insert=True)
    _set_members(row, set(said.members or ()))
    return row


def save_group(row: DirectoryGroup, said: GroupValues) -> None:
    """Store what the directory now says of a group. Raises NotUnique, TooMany, UnknownMember."""
    names = (row.display_name, row.external_id)
    _fill_group(row, said)
    row.changed_at = timezone.now()
    row.save()
    if names != (row.display_name, row.external_id):
        _apply(row.issuer, _identities(row.members.values_list("pk", flat=True)))
    if said.members is not None:
        _set_members(row, set(said.members))


def change_members(row: DirectoryGroup, *, add: Iterable[UUID] = (), remove: Iterable[UUID] = ()) -> None:
    """Add and remove users of a group. Raises TooMany, UnknownMember."""
    now = set(row.members.values_list("pk", flat=True))
    _set_members(row, (now | set(add)) - set(remove), now)


def delete_group(row: DirectoryGroup) -> None:
    """Forget a group, and withdraw the access that it gave."""
    concerned = _identities(row.members.values_list("pk", flat=True))
    row.delete()
    _apply(row.issuer, concerned)


def _fill_group(row: DirectoryGroup, said: GroupValues) -> None:
    others = DirectoryGroup.objects.filter(issuer=row.issuer).exclude(pk=row.pk)
    if said.external_id and others.filter(external_id=said.external_id).exists():
        raise NotUnique("Another group has this externalId.")
    row.display_name, row.display_name_key = said.display_name, key_of(said.display_name)
    row.external_id = said.external_id


def _set_members(row: DirectoryGroup, wanted: set[UUID], now: set[UUID] | None = None) -> None:
    if len(wanted) > MAX_MEMBERS:
        raise TooMany(f"A group has at most {MAX_MEMBERS} members.")
    now = set(row.members.values_list("pk", flat=True)) if now is None else now
    added, removed = wanted - now, now - wanted
    if not added and not removed:
        return
    known = DirectoryUser.objects.filter(issuer=row.issuer)
    unknown = added - set(known.filter(pk__in=added).values_list("pk", flat=True))
    if unknown:
        raise UnknownMember(f"{min(unknown)} is no user of this directory. Groups in groups are not supported.")
    row.members.add(*added)  # type: ignore[arg-type] # keys, as UUIDs
    row.members.remove(*removed)  # type: ignore[arg-type]
    row.changed_at = timezone.now()
    row.save(update_fields=["changed_at"])
    _apply(row.issuer, _identities(added | removed))


def _identities(users: Iterable[UUID]) -> list[UUID]:
    return list(DirectoryUser.objects.filter(pk__in=list(users)).values_list("identity", flat=True))


def _apply(issuer: Issuer, identities: Iterable[UUID]) -> None:
    _note_left(issuer, people.apply_rules(issuer, identities))


def _note_left(issuer: Issuer, ended: Iterable[Identity]) -> None:
    SignInEvent.objects.bulk_create(
        SignInEvent(
            step=SignInStep.LEFT,
            reason=LEFT.format(f"The directory of {issuer.name}")[:500],
            tenant=issuer.tenant,
            client_name=issuer.name,
            person_name=identity.person.get_username(),
        )
        for identity in ended
    )
