"""Which tenants a person may read or change. All access to tenant-owned rows goes through this module."""

from collections.abc import Collection
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest

from tools_app.models import Membership, Role, Tenant

# Fields that only superusers set: whether the tenant is active, its access to the hub's network, its public access.
PUBLIC = ("is_public", "public_tools", "public_calls_per_minute")
# And how long its records are kept: an admin must not be able to shorten the evidence of their actions.
SUPERUSERS_ONLY = ("slug", "is_active", "allowed_networks", "keep_days", *PUBLIC)

Person = AbstractBaseUser | AnonymousUser
Row = TypeVar("Row", bound=models.Model)

AUDITING = frozenset({Role.ADMIN, Role.AUDITOR})
RUNNING = frozenset({Role.ADMIN})
MAX_NAMED = 3
# The attribute of a request that holds the permissions of its user.
KEPT_AS = "_tenant_permissions"
PERMISSIONS_LOST = "Your permissions have changed in the meantime. Nothing was saved."


class TenantRole(NamedTuple):
    """A person's role in one tenant."""

    id: UUID
    slug: str
    name: str
    role: str
    requires_second_factor: bool

    @property
    def audits(self) -> bool:
        """Whether the role may read the arguments, events and results of calls."""
        return self.role in AUDITING

    @property
    def runs(self) -> bool:
        """Whether the role may change the tenant."""
        return self.role in RUNNING


def is_superuser(person: Person) -> bool:
    """Whether this is an active superuser, who may read every tenant."""
    return bool(person.is_active and getattr(person, "is_superuser", False))


def tenants_seen_by(person: Person) -> models.QuerySet[Tenant]:
    """Return the tenants that `person` may read: all for a superuser, else those the person is a member of."""
    return _tenants(person, list(Role))


def tenants_run_by(person: Person) -> models.QuerySet[Tenant]:
    """Return the tenants that `person` may change: all for a superuser, else those the person is an admin of."""
    return _tenants(person, RUNNING)


def tenant_roles_of(person: Person) -> tuple[TenantRole, ...]:
    """Return the tenants of a person who is not a superuser, ordered by name, with the roles: one query."""
    if not person.is_active or not person.is_authenticated:
        return ()
    members = Membership.objects.filter(user=person.pk).order_by("tenant__name")
    columns = ("tenant_id", "tenant__slug", "tenant__name", "role", "tenant__requires_second_factor")
    return tuple(map(TenantRole._make, members.values_list(*columns)))


def rows_seen_by(person: Person, rows: models.QuerySet[Row], tenant_field: str = "tenant") -> models.QuerySet[Row]:
    """Return those of `rows` that `person` may read."""
    if is_superuser(person):
        return rows
    return rows.filter(**{f"{tenant_field}__in": tenants_seen_by(person)})


def may_change(person: Person, tenant: Tenant) -> bool:
    """Whether `person` may change rows of `tenant`."""
    return tenants_run_by(person).filter(pk=tenant.pk).exists()


def may_enter_admin(person: Person) -> bool:
    """Whether `person` may enter the admin: superusers and members of any tenant."""
    return is_superuser(person) or (bool(person.is_active) and tenants_seen_by(person).exists())


def _tenants(person: Person, roles: Collection[Role]) -> models.QuerySet[Tenant]:
    if is_superuser(person):
        return Tenant.objects.all()
    if not person.is_active or not person.is_authenticated:
        return Tenant.objects.none()
    members = Membership.objects.filter(user=person.pk, role__in=roles)
    return Tenant.objects.filter(pk__in=members.values("tenant"))


class TenantPermissions:
    """The tenants that a person may access. A superuser may access all of them, so none are listed."""

    def __init__(self, person: Person) -> None:
        self.person = person

    @cached_property
    def has_access(self) -> bool:
        """Whether this person may use the admin and the REST API."""
        return self.is_superuser or bool(self.roles)

    @cached_property
    def roles(self) -> tuple[TenantRole, ...]:
        """The tenants of which this person, not a superuser, is a member."""
        return () if self.is_superuser else tenant_roles_of(self.person)

    @cached_property
    def is_superuser(self) -> bool:
        """Whether this person is a superuser."""
        return is_superuser(self.person)

    @cached_property
    def readable(self) -> frozenset[Any]:
        """Ids of the tenants that this person, not a superuser, may read."""
        return frozenset(role.id for role in self.roles)

    @cached_property
    def audited(self) -> frozenset[Any]:
        """Ids of the tenants whose arguments, events and results this person, not a superuser, may read."""
        return frozenset(role.id for role in self.roles if role.audits)

    @cached_property
    def administered(self) -> frozenset[Any]:
        """Ids of the tenants that this person, not a superuser, may change."""
        return frozenset(role.id for role in self.roles if role.runs)

    @cached_property
    def requiring_second_factor(self) -> list[str]:
        """Names of tenants that require a second factor of this person; for a superuser, of all tenants."""
        if not self.is_superuser:
            return [role.name for role in self.roles if role.requires_second_factor]
        tenants = Tenant.objects.filter(requires_second_factor=True)
        return list(tenants.order_by("name").values_list("name", flat=True)[:MAX_NAMED])

    def rows_seen(self, rows: models.QuerySet[Row], tenant_field: str = "tenant") -> models.QuerySet[Row]:
        """Return those of `rows` that this person may read, by the tenants that are known already."""
        return rows if self.is_superuser else rows.filter(**{f"{tenant_field}__in": self.readable})

    def rows_run(self, rows: models.QuerySet[Row], tenant_field: str = "tenant") -> models.QuerySet[Row]:
        """Return those of `rows` that this person may change, by the tenants that are known already."""
        return rows if self.is_superuser else rows.filter(**{f"{tenant_field}__in": self.administered})

    def sees(self, tenant_id: Any) -> bool:
        """Whether rows of this tenant may be read; rows without a tenant are for superusers."""
        return self.is_superuser or tenant_id in self.readable

    def audits(self, tenant_id: Any) -> bool:
        """Whether arguments, events and results of this tenant's calls may be read, beside the calls' facts."""
        return self.is_superuser or tenant_id in self.audited

    def changes(self, tenant_id: Any) -> bool:
        """Whether rows of this tenant may be changed."""
        return self.is_superuser or tenant_id in self.administered

    def require_change(self, tenant_id: Any) -> None:
        """Raise Http404 if rows of this tenant may not be read, and PermissionDenied if they may not be changed."""
        if not self.sees(tenant_id):
            raise Http404("Not found.")
        if not self.changes(tenant_id):
            raise PermissionDenied

    def confirm(self) -> None:
        """Raise PermissionDenied if the person has lost any of these permissions since they were read."""
        person = User.objects.filter(pk=self.person.pk, is_active=True).first()  # type: ignore[misc] # it is a user
        now = TenantPermissions(person or AnonymousUser())
        if now.is_superuser:
            return
        is_kept = (
            self.readable <= now.readable and self.audited <= now.audited and self.administered <= now.administered
        )
        if person is None or self.is_superuser or not is_kept:
            raise PermissionDenied(PERMISSIONS_LOST)

    @property
    def is_admin_anywhere(self) -> bool:
        """Whether this person may change any tenant."""
        return self.is_superuser or bool(self.administered)

    @property
    def sees_several_tenants(self) -> bool:
        """Whether pages must show which tenant a row belongs to."""
        return self.is_superuser or len(self.readable) > 1


def tenant_permissions_of(request: HttpRequest) -> TenantPermissions:
    """Return the permissions of the user who is logged in on `request`, read once per request."""
    # On the request itself: a map with weak keys would keep each request forever, since its user refers to it.
    permitted: TenantPermissions | None = vars(request).get(KEPT_AS)
    # Logging in changes the user during a request.
    if permitted is None or permitted.person != request.user:
        permitted = vars(request)[KEPT_AS] = TenantPermissions(request.user)
    return permitted
