"""People and groups as a company's directory maintains them (RFC 7644), and what follows for their access.

Every function is called in a transaction of the change log (`audit.changes`), and applies the issuer's rules at once:
who is deactivated, deleted or in no group that a rule names loses access within a second in all processes. Nothing here
reaches an account that is not this issuer's.

A change of a group with many members is made in parts, each in a transaction of its own: no other process can change
anything meanwhile. Each part is whole. A directory that sends the request again finishes what was interrupted.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import CharField, F, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from tools_app.identity.models.issuers import MAX_VALUE
from tools_app.identity.people import directory, people
from tools_app.models import DirectoryGroup, DirectoryUser, Identity, Issuer, SignInEvent, SignInStep

MAX_GROUPS: Final = 250
MAX_MEMBERS: Final = 2000
# People whom one transaction concerns.
PART: Final = 100
# The fields of a user that the directory says.
SAID: Final = ("user_name", "user_name_key", "external_id", "active", "resource", "emails_key", "changed_at")
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
    """What the directory says of a group. `members` are IDs of users; None: as they are.

    `names`: the directory says its names, too, so that they are applied to all members.
    """

    display_name: str
    external_id: str = ""
    members: Collection[UUID] | None = None
    names: bool = True


class Part(NamedTuple):
    """A part of a change of a group: IDs of users to add, to remove, and to whom the rules are applied again."""

    add: frozenset[UUID]
    remove: frozenset[UUID]
    apply: frozenset[UUID]


def key_of(text: str) -> str:
    """Return a text as it is compared without case."""
    return text.casefold()[:MAX_VALUE]


# --- Users ----------------------------------------------------------------------------------------------------


def create_user(issuer: Issuer, values: UserValues) -> DirectoryUser:
    """Store a person, with an account unless they signed in before. Raises NotUnique, TooMany."""
    row = DirectoryUser(issuer=issuer)
    _check_user(row, values)
    _fill_user(row, values)
    found = _known(issuer, values.external_id)
    if found is None:
        try:
            found = people.create(issuer, "", directory.profile_of(row))
        except people.SignInRejected as problem:
            raise TooMany(str(problem)) from problem
        # Access begins with a rule that fits, below.
        Identity.objects.filter(pk=found.pk).update(ended_at=timezone.now())
    row.identity = found
    row.save(force_insert=True)
    _apply(issuer, [found.pk])
    return row


def save_user(row: DirectoryUser, values: UserValues) -> None:
    """Store what the directory now says of a person. Raises NotUnique."""
    _check_user(row, values)
    has_new_id = values.external_id != row.external_id
    _fill_user(row, values)
    row.changed_at = timezone.now()
    row.save(update_fields=SAID)
    if has_new_id:
        found = _known(row.issuer, row.external_id)
        if found is not None:
            _link(row, found)
    identity = row.identity
    if people.belongs(identity):
        people.describe(identity.person, directory.claims_of(row))
    _apply(row.issuer, [identity.pk])


def link_all(issuer: Issuer) -> None:
    """Give the people of a directory the accounts that they use, after the claim of the external ID changed."""
    unlinked = _unlinked(issuer).exclude(claim=None)
    entries = DirectoryUser.objects.filter(issuer=issuer).exclude(external_id="")
    wanted = dict(unlinked.values_list("claim", "pk"))
    known = [found for found in entries.values_list("external_id", "pk") if found[0] in wanted]
    for external_id, key in known:
        entry = entries.select_related("identity__person", "identity__issuer").get(pk=key)
        _link(entry, unlinked.select_related("person", "issuer").get(pk=wanted[external_id]))


def _link(entry: DirectoryUser, found: Identity) -> None:
    """Give a person the account that the external ID leads to, or withdraw its access: they use another one."""
    if not entry.identity.subject:
        directory.link(entry, found)
    elif people.end(found):
        _note_left(entry.issuer, [found])


def delete_user(row: DirectoryUser) -> None:
    """Forget a person and withdraw their access; delete their account, too, if they never signed in."""
    issuer, identity = row.issuer, row.identity
    row.delete()
    if people.end(identity):
        _note_left(issuer, [identity])
    directory.discard(identity)


def _check_user(row: DirectoryUser, values: UserValues) -> None:
    others = DirectoryUser.objects.filter(issuer=row.issuer).exclude(pk=row.pk)
    if others.filter(user_name_key=key_of(values.user_name)).exists():
        raise NotUnique("Another user has this userName.")
    if values.external_id and others.filter(external_id=values.external_id).exists():
        raise NotUnique("Another user has this externalId.")


def _fill_user(row: DirectoryUser, values: UserValues) -> None:
    row.user_name, row.user_name_key = values.user_name, key_of(values.user_name)
    row.external_id, row.active, row.resource = values.external_id, values.active, values.others
    lines = []
    for email in values.others.get("emails") or []:
        # As it is searched for: alone, and with its type.
        if value := key_of(str(email.get("value") or "")):
            lines += [value, key_of(f"{email.get('type') or ''} {value}")]
    row.emails_key = "\n{}\n".format("\n".join(lines)) if lines else ""


def _known(issuer: Issuer, external_id: str) -> Identity | None:
    """Return the identity of somebody who signed in before they were provisioned."""
    if not external_id:
        return None
    found: Identity | None = _unlinked(issuer).filter(claim=external_id).select_related("person", "issuer").first()
    return found


def _unlinked(issuer: Issuer) -> QuerySet[Any]:
    """Return who signed in and is not of the directory, with the `claim` that has the external ID."""
    rows = Identity.objects.filter(issuer=issuer, directory_user=None).exclude(subject="")
    if issuer.directory_claim == "sub":
        return rows.annotate(claim=F("subject"))
    return rows.annotate(claim=Cast(KeyTextTransform(issuer.directory_claim, "claims"), CharField()))


# --- Groups ---------------------------------------------------------------------------------------------------


def create_group(issuer: Issuer, values: GroupValues) -> tuple[DirectoryGroup, list[Part]]:
    """Store a group; return it and the parts that are left to do. Raises NotUnique, TooMany, UnknownMember."""
    if DirectoryGroup.objects.filter(issuer=issuer).count() >= MAX_GROUPS:
        raise TooMany(f"A directory has at most {MAX_GROUPS} groups. Assign fewer groups to this application.")
    row = DirectoryGroup(issuer=issuer)
    _fill_group(row, values)
    row.save(force_insert=True)
    also = _members_of_named(row, {row.external_id})
    return row, _begin(row, _parts(row, set(values.members or ()), also))


def save_group(row: DirectoryGroup, values: GroupValues) -> list[Part]:
    """Store what the directory now says of a group; return the parts that are left to do.

    Raises NotUnique, TooMany, UnknownMember.
    """
    ids = {row.external_id, values.external_id}
    _fill_group(row, values)
    row.changed_at = timezone.now()
    row.save(update_fields=["display_name", "display_name_key", "external_id", "changed_at"])
    now = set(row.members.values_list("pk", flat=True))
    # Although they may be as before: an earlier request may have been interrupted.
    also = now | _members_of_named(row, ids) if values.names else set()
    return _begin(row, _parts(row, now if values.members is None else set(values.members), also))


def shrink_group(row: DirectoryGroup) -> list[Part]:
    """Return the parts that remove the members before a group is deleted; none if it has few."""
    now = set(row.members.values_list("pk", flat=True))
    return [] if len(now) <= PART else _parts(row, set(), set())


def delete_group(row: DirectoryGroup) -> list[Part]:
    """Forget a group, and withdraw the access that it gave; return the parts that are left to do."""
    concerned = _identities(row.members.values_list("pk", flat=True))
    also = _members_of_named(row, {row.external_id})
    row.delete()
    _apply(row.issuer, concerned)
    return [Part(frozenset(), frozenset(), frozenset(some)) for some in _batches(also)]


def do_part(row: DirectoryGroup, part: Part) -> None:
    """Change the members of a group by a part, and apply the rules to those whom it concerns."""
    # Who was deleted meanwhile is left out.
    add = set(DirectoryUser.objects.filter(issuer=row.issuer, pk__in=part.add).values_list("pk", flat=True))
    if add:
        row.members.add(*add)  # type: ignore[arg-type] # keys, as UUIDs
    if part.remove:
        row.members.remove(*part.remove)  # type: ignore[arg-type]
    if add or part.remove:
        row.changed_at = timezone.now()
        row.save(update_fields=["changed_at"])
    _apply(row.issuer, _identities(add | part.remove | part.apply))


def _begin(row: DirectoryGroup, parts: list[Part]) -> list[Part]:
    """Do the first part in this transaction. Return the others."""
    if parts:
        do_part(row, parts[0])
    return parts[1:]


def _parts(row: DirectoryGroup, wanted: set[UUID], also: set[UUID]) -> list[Part]:
    """Return the parts of a change to these members; the rules are applied to others, too.

    Raises TooMany, UnknownMember.
    """
    if len(wanted) > MAX_MEMBERS:
        raise TooMany(f"A group has at most {MAX_MEMBERS} members.")
    now = set(row.members.values_list("pk", flat=True))
    add, remove = wanted - now, now - wanted
    known = DirectoryUser.objects.filter(issuer=row.issuer)
    unknown = add - set(known.filter(pk__in=add).values_list("pk", flat=True))
    if unknown:
        raise UnknownMember(f"{min(unknown)} is no user of this directory. Groups in groups are not supported.")
    return [
        Part(frozenset(some & add), frozenset(some & remove), frozenset(some - add - remove))
        for some in _batches(add | remove | also)
    ]


def _batches(keys: set[UUID]) -> list[set[UUID]]:
    every = sorted(keys)
    return [set(every[start : start + PART]) for start in range(0, len(every), PART)]


def _members_of_named(row: DirectoryGroup, ids: set[str]) -> set[UUID]:
    """Return the members of other groups whose name is one of these external IDs: see `directory.claims_of`."""
    others = DirectoryGroup.objects.filter(issuer=row.issuer, display_name__in=ids - {""}).exclude(pk=row.pk)
    return set(others.exclude(members=None).values_list("members", flat=True))


def _fill_group(row: DirectoryGroup, values: GroupValues) -> None:
    others = DirectoryGroup.objects.filter(issuer=row.issuer).exclude(pk=row.pk)
    if values.external_id and others.filter(external_id=values.external_id).exists():
        raise NotUnique("Another group has this externalId.")
    row.display_name, row.display_name_key = values.display_name, key_of(values.display_name)
    row.external_id = values.external_id


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
