"""Of which tenants a person's search finds calls. What it may not see is not looked at."""

from dataclasses import dataclass
from uuid import UUID

from tools_app.audit.search.query import BadQuery, CallQuery
from tools_app.auth import access
from tools_app.auth.access import Seat
from tools_app.models import Tenant

REFUSED = (
    "You may see who called what in this tenant, but not arguments and results, so they cannot be searched. "
    "An admin of the tenant can make you an auditor."
)


class TextRefused(BadQuery):
    """A search for a text by a person who may not read it."""

    def __init__(self) -> None:
        super().__init__({"text": REFUSED})


@dataclass(frozen=True)
class Scope:
    """The tenants whose calls are looked at; None: every tenant's, and denials that belong to none.

    `seats` are all tenants that the person sees; a superuser sees `everything`. `narrowed`: some of them are not looked
    at, because a text is looked for that the person may not read there.
    """

    tenants: tuple[UUID, ...] | None
    seats: tuple[Seat, ...] = ()
    narrowed: bool = False
    everything: bool = False

    def audits(self, tenant_id: UUID | None) -> bool:
        """Whether what was said in calls of this tenant may be read, beside the facts."""
        return self.everything or any(seat.audits for seat in self.seats if seat.id == tenant_id)


def scope_of(query: CallQuery, person: access.Person, seats: tuple[Seat, ...] | None = None) -> Scope:
    """What `person` searches with this query; its seats are looked up, unless they are known already.

    Raises TextRefused. A foreign tenant is like one that is missing.
    """
    if access.is_superuser(person):
        return whole(query)
    seats = access.seats_of(person) if seats is None else seats
    wanted = [seat for seat in seats if _is_wanted(query.tenant.lower(), seat)]
    if not query.text:
        return Scope(tuple(seat.id for seat in wanted), seats)
    readable = tuple(seat.id for seat in wanted if seat.audits)
    if wanted and not readable:
        raise TextRefused
    return Scope(readable, seats, narrowed=len(readable) < len(wanted))


def whole(query: CallQuery) -> Scope:
    """What a superuser searches, or a command."""
    return Scope(_named(query.tenant), everything=True)


def _named(tenant: str) -> tuple[UUID, ...] | None:
    """The tenant of this id or slug. One that was deleted has left its calls behind, under its id."""
    if not tenant:
        return None
    try:
        return (UUID(tenant),)
    except ValueError:
        return tuple(Tenant.objects.filter(slug=tenant).values_list("pk", flat=True))


def _is_wanted(wanted: str, seat: Seat) -> bool:
    return wanted in {"", seat.slug, str(seat.id), seat.id.hex}
