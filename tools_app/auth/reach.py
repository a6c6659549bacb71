"""What a person may see and change, asked of `auth.access` once and kept for as long as one request takes."""

from functools import cached_property
from typing import Any

from tools_app.auth import access


class Reach:
    """The tenants within a person's reach. A superuser reaches all of them, so none are listed for it."""

    def __init__(self, person: access.Person) -> None:
        self.person = person

    @cached_property
    def enters(self) -> bool:
        """Whether the hub has anything for this person."""
        return self.everything or bool(self.seats)

    @cached_property
    def seats(self) -> tuple[access.Seat, ...]:
        """The tenants that this person, no superuser, is a member of."""
        return () if self.everything else access.seats_of(self.person)

    @cached_property
    def everything(self) -> bool:
        """Whether this is a superuser."""
        return access.is_superuser(self.person)

    @cached_property
    def seen(self) -> frozenset[Any]:
        """Ids of the tenants that this person, no superuser, may read."""
        return frozenset(seat.id for seat in self.seats)

    @cached_property
    def audited(self) -> frozenset[Any]:
        """Ids of the tenants whose arguments, events and results this person, no superuser, may read."""
        return frozenset(seat.id for seat in self.seats if seat.audits)

    @cached_property
    def run(self) -> frozenset[Any]:
        """Ids of the tenants that this person, no superuser, may change."""
        return frozenset(seat.id for seat in self.seats if seat.runs)

    def sees(self, tenant_id: Any) -> bool:
        """Whether rows of this tenant may be read; rows without one are for superusers."""
        return self.everything or tenant_id in self.seen

    def audits(self, tenant_id: Any) -> bool:
        """Whether what was sent and answered in this tenant's calls may be read, beside the facts of the calls."""
        return self.everything or tenant_id in self.audited

    def changes(self, tenant_id: Any) -> bool:
        """Whether rows of this tenant may be changed."""
        return self.everything or tenant_id in self.run

    @property
    def runs_any(self) -> bool:
        """Whether there is a tenant that this person may change."""
        return self.everything or bool(self.run)

    @property
    def sees_several(self) -> bool:
        """Whether it must be said of a row whose tenant it belongs to."""
        return self.everything or len(self.seen) > 1
