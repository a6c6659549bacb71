"""The tenants whose calls a person's search finds. Calls outside the scope are not scanned."""

from dataclasses import dataclass
from uuid import UUID

from tools_app.audit.search.query import BadQuery, CallQuery
from tools_app.models import Tenant
from tools_app.tenants import permissions
from tools_app.tenants.permissions import TenantRole

REFUSED = (
    "You may see who called what in this tenant, but not arguments and results, so they cannot be searched. "
    "An admin of the tenant can make you an auditor."
)


class TextRefused(BadQuery):
    """A text search by a person who may not read the text."""

    def __init__(self) -> None:
        super().__init__({"text": REFUSED})


@dataclass(frozen=True)
class Scope:
    """The tenants whose calls are searched; None: every tenant's, and denials without a tenant.

    `roles` are all tenants that the person may see; a superuser sees `everything`. `narrowed`: some of them are not
    searched, because the person may not read the searched text there.
    """

    tenants: tuple[UUID, ...] | None
    roles: tuple[TenantRole, ...] = ()
    narrowed: bool = False
    everything: bool = False

    def audits(self, tenant_id: UUID | None) -> bool:
        """Return whether payloads and events of calls of this tenant may be read, besides the facts."""
        return self.everything or any(role.audits for role in self.roles if role.id == tenant_id)


def scope_of(query: CallQuery, person: permissions.Person, roles: tuple[TenantRole, ...] | None = None) -> Scope:
    """Return what `person` searches with this query; `roles` are looked up unless they are given.

    Raises TextRefused. A foreign tenant is indistinguishable from a missing one.
    """
    if permissions.is_superuser(person):
        return whole(query)
    roles = permissions.tenant_roles_of(person) if roles is None else roles
    tenant = query.tenant.lower()
    wanted = [role for role in roles if tenant in {"", role.slug, str(role.id), role.id.hex}]
    if not query.text:
        return Scope(tuple(role.id for role in wanted), roles)
    readable = tuple(role.id for role in wanted if role.audits)
    if wanted and not readable:
        raise TextRefused
    return Scope(readable, roles, narrowed=len(readable) < len(wanted))


def whole(query: CallQuery) -> Scope:
    """Return the scope of a superuser or a command. Calls of a deleted tenant remain under its id."""
    if not query.tenant:
        return Scope(None, everything=True)
    try:
        return Scope((UUID(query.tenant),), everything=True)
    except ValueError:
        return Scope(tuple(Tenant.objects.filter(slug=query.tenant).values_list("pk", flat=True)), everything=True)
