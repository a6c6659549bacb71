"""Which tenants a person may see or change. Tenant-owned rows are reached through these functions only."""

from collections.abc import Collection
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models

from tools_app.models import Membership, Role, Tenant

# What only the people who run the hub decide: who is on it, what of its own network it opens, and what to everybody.
PUBLIC = ("is_public", "public_tools", "public_calls_per_minute")
# And how long its records are kept: an admin must not be able to shorten the evidence of what he did.
SUPERUSERS_ONLY = ("slug", "is_active", "allowed_networks", "keep_days", *PUBLIC)

Person = AbstractBaseUser | AnonymousUser
Row = TypeVar("Row", bound=models.Model)

AUDITING = frozenset({Role.ADMIN, Role.AUDITOR})
RUNNING = frozenset({Role.ADMIN})


class Seat(NamedTuple):
    """A tenant that a person is a member of, and as what."""

    id: UUID
    slug: str
    name: str
    role: str

    @property
    def audits(self) -> bool:
        """Whether calls may be read with arguments, events and results."""
        return self.role in AUDITING

    @property
    def runs(self) -> bool:
        """Whether the tenant may be changed."""
        return self.role in RUNNING


def is_superuser(person: Person) -> bool:
    """Whether this is an active superuser, who may see every tenant."""
    return bool(person.is_active and getattr(person, "is_superuser", False))


def tenants_seen_by(person: Person) -> models.QuerySet[Tenant]:
    """Tenants whose pages `person` may read: all for a superuser, else those it is a member of."""
    return _tenants(person, list(Role))


def tenants_audited_by(person: Person) -> models.QuerySet[Tenant]:
    """Tenants whose calls `person` may read with arguments, events and results: not where it is only an operator."""
    return _tenants(person, AUDITING)


def tenants_run_by(person: Person) -> models.QuerySet[Tenant]:
    """Tenants that `person` may change: all for a superuser, else those it is an admin of."""
    return _tenants(person, RUNNING)


def seats_of(person: Person) -> tuple[Seat, ...]:
    """All that the three functions above say of a person who is no superuser, in one query: its tenants by name."""
    if not person.is_active or not person.is_authenticated:
        return ()
    members = Membership.objects.filter(user=person.pk).order_by("tenant__name")
    return tuple(map(Seat._make, members.values_list("tenant_id", "tenant__slug", "tenant__name", "role")))


def rows_seen_by(person: Person, rows: models.QuerySet[Row], tenant_field: str = "tenant") -> models.QuerySet[Row]:
    """Those of `rows` that `person` may read."""
    if is_superuser(person):
        return rows
    return rows.filter(**{f"{tenant_field}__in": tenants_seen_by(person)})


def may_change(person: Person, tenant: Tenant) -> bool:
    """Whether `person` may change what belongs to `tenant`."""
    return tenants_run_by(person).filter(pk=tenant.pk).exists()


def may_enter_admin(person: Person) -> bool:
    """Whether there is anything in the admin for `person`: superusers and members of any tenant."""
    return is_superuser(person) or (bool(person.is_active) and tenants_seen_by(person).exists())


def _tenants(person: Person, roles: Collection[Role]) -> models.QuerySet[Tenant]:
    if is_superuser(person):
        return Tenant.objects.all()
    if not person.is_active or not person.is_authenticated:
        return Tenant.objects.none()
    members = Membership.objects.filter(user=person.pk, role__in=roles)
    return Tenant.objects.filter(pk__in=members.values("tenant"))
