"""What the person behind a request may see and change, asked of `auth.access` once per request."""

from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from django.http import HttpRequest

from tools_app.auth import access


class Reach:
    """The tenants within a person's reach. A superuser reaches all of them, so none are listed for it."""

    def __init__(self, person: access.Person) -> None:
        self.person = person

    @cached_property
    def enters(self) -> bool:
        """Whether the admin has anything for this person."""
        return access.may_enter_admin(self.person)

    @cached_property
    def everything(self) -> bool:
        """Whether this is a superuser."""
        return access.is_superuser(self.person)

    @cached_property
    def seen(self) -> frozenset[Any]:
        """Ids of the tenants that this person, no superuser, may read."""
        return frozenset(access.tenants_seen_by(self.person).values_list("pk", flat=True))

    @cached_property
    def audited(self) -> frozenset[Any]:
        """Ids of the tenants whose arguments, events and results this person, no superuser, may read."""
        return frozenset(access.tenants_audited_by(self.person).values_list("pk", flat=True))

    @cached_property
    def run(self) -> frozenset[Any]:
        """Ids of the tenants that this person, no superuser, may change."""
        return frozenset(access.tenants_run_by(self.person).values_list("pk", flat=True))

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


_reaches: "WeakKeyDictionary[HttpRequest, Reach]" = WeakKeyDictionary()


def reach_of(request: HttpRequest) -> Reach:
    """The reach of the person who is logged in on `request`."""
    reach = _reaches.get(request)
    # Logging in changes the person in the middle of a request.
    if reach is None or reach.person != request.user:
        reach = _reaches[request] = Reach(request.user)
    return reach
